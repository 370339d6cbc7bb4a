"""`ctrpipe bench`."""

import json
import pathlib
import sys

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.exit_codes import INTERRUPTED
from ctrpipe.common.extras import require
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.output_folder import check_output
from ctrpipe.common.processes import python_command, run_in_new_process
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.commands.options import PATH
from ctrpipe.serving.server.options import parse_flags, set_environment

SERVE = (*python_command("from ctrpipe.pipeline.cli import main; main(prog_name='ctrpipe')"), "serve")
EXPORTED = ("dcn_v2", "lr")
BASELINE = "transformer"


@click.group()
def bench() -> None:
    """Measure a served model."""


@bench.command()
@click.option("--target", default="local", show_default=True, help="local, or http://HOST:PORT/v1/models/NAME.")
@click.option("--grpc", default=None, metavar="HOST:PORT", help="gRPC of --target; a local server has one.")
@click.option("--model", "models", multiple=True, type=PATH, help="Folder of versions; a second model: ratios only.")
@click.option("--baseline", type=PATH, default=None, help="Hiformer's unit: the export of a one-layer transformer.")
@click.option("--data", type=PATH, default=None, help="A raw log for the requests. Default: rows kept with the model.")
@click.option("--config", type=PATH, default=None, help="YAML with any of the settings; options win.")
@click.option("--quick", is_flag=True, help="About a minute: fewer cells, one round.")
@click.option("--kind", "kinds", multiple=True, help="rest_row, rest_columnar, rest_b64, grpc_packed, grpc_examples.")
@click.option("--rows", multiple=True, type=click.IntRange(1), help="Rows in a request; repeatable.")
@click.option("--concurrency", multiple=True, type=click.IntRange(1), help="Clients; repeatable.")
@click.option(
    "--history", type=click.IntRange(1), help="Items of every history, to the model's max_length.", default=None
)
@click.option("--rate", "rates", multiple=True, type=float, help="Open loop: requests a second; repeatable.")
@click.option("--rounds", type=click.IntRange(1), help="How often all cells are measured in turn.", default=None)
@click.option("--seconds", type=float, help="Of one cell in one round.", default=None)
@click.option("--papers/--no-papers", default=None, help="Whether the papers' methods are measured.")
@click.option("--server-flag", "flags", multiple=True, help="A flag of the local server; repeatable.")
@click.option("--output", type=PATH, default=pathlib.Path("runs/benchmarks/latency"), show_default=True)
def latency(
    target: str,
    grpc: str | None,
    models: tuple[pathlib.Path, ...],
    baseline: pathlib.Path | None,
    data: pathlib.Path | None,
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
    flags: tuple[str, ...],
    output: pathlib.Path,
) -> None:
    """Latency and rows/s of a served model beside calls of the same model in this process.

    Requests are real rows, built before; separate processes send them, in a closed loop and at Poisson times, where
    latency runs from the intended start. Without --model, a DCN-v2, a logistic regression and a Transformer are made
    first on a generated log, in OUTPUT/exports. Prints tables, writes latency.json and latency.html, and ends with a
    JSON object; Ctrl-C ends it early with what is there. Takes 5 to 8 minutes.
    """
    from ctrpipe.serving.latency.settings import read_settings  # pydantic: 0.1 s that `ctrpipe --help` does without

    options = {"kinds": kinds, "rows": rows, "concurrency": concurrency, "rounds": rounds, "seconds": seconds}
    settings = read_settings(config, quick, rates=rates, papers=papers, history=history, **options)
    if target != "local" and not models:
        raise InputError(f"--target {target}: give --model, the folder of the model that is served there")
    if not models:
        require("pipeline", "a model to measure", "give --model")
    set_environment(parse_flags(flags))  # calls in this process run as those in the server
    check_output(output)
    load_tensorflow()
    # TensorFlow: 3 s, which a mistake in the options does without.
    from ctrpipe.serving.latency.report import last_line, show, write
    from ctrpipe.serving.latency.run import measure_latency

    if not models:
        from ctrpipe.pipeline.demo.sample_export import LOG  # 0.4 s, which a benchmark of given models does without

        def export(name: str) -> pathlib.Path:
            announce(f"no --model: exporting {name}, trained for a few steps")
            # In a process of its own: after an export in this one, calls here would take twice as long.
            return run_in_new_process(_export, name, output / "exports")

        models = tuple(export(name) for name in (EXPORTED[:1] if quick else EXPORTED))
        baseline = baseline or (export(BASELINE) if settings.papers else None)
        data = data or output / "exports" / LOG
    report = measure_latency(models, data, settings, SERVE, target, grpc, flags, baseline, announce)
    paths = write(report, output)
    show(report)
    click.echo(f"Written to {', '.join(map(str, paths))}")
    click.echo(json.dumps(last_line(report)))
    if report["interrupted"]:
        sys.exit(INTERRUPTED)


def _export(name: str, folder: pathlib.Path) -> pathlib.Path:
    """Makes a sample export in this process, with TensorFlow loaded quietly before; returns the version's folder."""
    load_tensorflow()
    from ctrpipe.pipeline.demo.sample_export import make_export

    return make_export(name, folder)
