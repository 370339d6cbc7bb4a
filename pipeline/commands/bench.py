"""The command `ctrpipe bench`."""

import json
import pathlib
import sys

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import INTERRUPTED
from ctrpipe.common.extras import require
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.output_folder import check_output
from ctrpipe.common.processes import python_command, run_in_new_process
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.commands.options import CONFIG, MODEL, PATH, PATH_OR_URL
from ctrpipe.serving.server.options import parse_flags, set_environment

SERVE = (*python_command("from ctrpipe.pipeline.cli import main; main(prog_name='ctrpipe')"), "serve")
EXPORTED = ("dcn_v2", "lr")
BASELINE = "transformer"


@click.group()
def bench() -> None:
    """Benchmark a served model."""


@bench.command()
@click.option("--target", default="local", show_default=True, help="local, or http://HOST:PORT/v1/models/NAME.")
@click.option("--grpc", default=None, metavar="HOST:PORT", help="gRPC address of --target. A local server has one.")
@click.option("--beside", default=None, metavar="URL", help="Compare with this server of the same model, interleaved.")
@click.option("--beside-grpc", default=None, metavar="HOST:PORT", help="gRPC address of --beside.")
@click.option("--model", "models", multiple=True, type=MODEL, help="Run, model or version. Further ones: ratios only.")
@click.option("--baseline", type=MODEL, default=None, help="One-layer Transformer, Hiformer's unit of latency.")
@click.option(
    "--data", type=PATH_OR_URL, default=None, help="Raw log for the requests. Default: rows kept with the model."
)
@click.option("--config", type=CONFIG, default=None, help="YAML file with any of the settings. Options override it.")
@click.option("--quick", is_flag=True, help="Fewer cells and one round, about a minute.")
@click.option("--kind", "kinds", multiple=True, help="rest_row, rest_columnar, rest_b64, grpc_packed, grpc_examples.")
@click.option("--rows", multiple=True, type=click.IntRange(1), help="Rows per request; repeatable.")
@click.option("--concurrency", multiple=True, type=click.IntRange(1), help="Number of clients; repeatable.")
@click.option(
    "--history", type=click.IntRange(1), help="Items in every history, up to the model's max_length.", default=None
)
@click.option("--rate", "rates", multiple=True, type=float, help="Open loop: requests per second; repeatable.")
@click.option("--rounds", type=click.IntRange(1), help="Rounds; each measures every cell once.", default=None)
@click.option("--seconds", type=float, help="Seconds per cell and round.", default=None)
@click.option("--papers/--no-papers", default=None, help="Measure by the methods of Hiformer and BERT4CTR.")
@click.option("--bars", is_flag=True, help="Compare the ratios with the targets of ctrpipe's own server.")
@click.option("--server-flag", "flags", multiple=True, help="A flag of the local server; repeatable.")
@click.option(
    "--output", type=PATH, default=pathlib.Path("runs/benchmarks/latency"), show_default=True, help="Result folder."
)
def latency(
    target: str,
    grpc: str | None,
    beside: str | None,
    beside_grpc: str | None,
    models: tuple[pathlib.Path, ...],
    baseline: pathlib.Path | None,
    data: pathlib.Path | str | None,
    config: pathlib.Path | None,
    quick: bool,
    kinds: tuple[str, ...],
    rows: tuple[int, ...],
    concurrency: tuple[int, ...],
    history: int | None,
    rates: tuple[float, ...],
    rounds: int | None,
    seconds: float | None,
    papers: bool | None,
    bars: bool,
    flags: tuple[str, ...],
    output: pathlib.Path,
) -> None:
    """Measure latency and throughput of a served model.

    Compares the server with direct calls of the same model in this process. Requests contain real rows and are built in
    advance. Separate processes send them in a closed loop, and in an open loop with Poisson arrivals, where latency
    counts from the intended start. Without --model, first exports a DCN-v2, a logistic regression and a Transformer,
    trained on a generated log, to OUTPUT/exports. Prints tables and, as the last line, a JSON object; writes
    latency.json and latency.html. Ctrl-C stops early and keeps the results so far. Takes 5 to 8 minutes.

    With --beside, measures the server of --target and another one that serves the same model, request by request in
    random order, and prints ratios with 95% intervals; writes beside.json.
    """
    from ctrpipe.serving.latency.settings import read_settings  # lazy: pydantic takes 0.1 s

    options = {"kinds": kinds, "rows": rows, "concurrency": concurrency, "rounds": rounds, "seconds": seconds}
    settings = read_settings(config, quick, rates=rates, papers=papers, history=history, **options)
    if target != "local" and not models:
        raise InputError(f"--target {target}: give --model, the folder of the model that is served there")
    if beside and len(models) != 1:
        raise InputError("--beside: give --model once, the folder of the model that both servers serve")
    if beside_grpc and not beside:
        raise InputError("--beside-grpc needs --beside, the URL of the other server")
    if not models:
        require("pipeline", "a model to measure", "give --model")
    set_environment(parse_flags(flags))  # direct calls run with the same settings as the server
    check_output(output)
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s to import. Invalid options fail before it.
    from ctrpipe.serving.latency.compare import show_comparison, summary, write_comparison
    from ctrpipe.serving.latency.report import last_line, show, write
    from ctrpipe.serving.latency.run import measure_beside, measure_latency

    if beside:
        other = beside, beside_grpc
        comparison = measure_beside(models[0], data, settings, SERVE, other, target, grpc, flags, announce)
        written = write_comparison(comparison, output)
        show_comparison(comparison)
        say(f"Written to {written}")
        click.echo(json.dumps(summary(comparison)))
        sys.exit(INTERRUPTED if comparison["interrupted"] else 0)
    if not models:
        from ctrpipe.pipeline.run.sample_export import LOG  # lazy: 0.4 s, and not needed with --model

        def export(name: str) -> pathlib.Path:
            announce(f"no --model: exporting {name}, trained for a few steps")
            # In a new process: after an export in this process, calls in it take twice as long.
            return run_in_new_process(_export, name, output / "exports")

        models = tuple(export(name) for name in (EXPORTED[:1] if quick else EXPORTED))
        baseline = baseline or (export(BASELINE) if settings.papers else None)
        data = data or output / "exports" / LOG
    report = measure_latency(models, data, settings, SERVE, target, grpc, flags, baseline, announce, bars)
    paths = write(report, output)
    show(report)
    say(f"Written to {', '.join(map(str, paths))}")
    click.echo(json.dumps(last_line(report)))
    if report["interrupted"]:
        sys.exit(INTERRUPTED)


def _export(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Makes a sample export and returns the folder of the version."""
    load_tensorflow()
    from ctrpipe.pipeline.run.sample_export import make_export  # lazy: numpy and pydantic take 0.6 s

    return make_export(name, folder)
