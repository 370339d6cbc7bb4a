"""The command line."""

import json
import os
import pathlib
import sys

os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import click

from transforms.errors import InputError, causes

BLOCKED = 1
INTERRUPTED = 130  # what a shell reports for Ctrl-C
PATH = click.Path(path_type=pathlib.Path)


class _Group(click.Group):
    """Turns a user's mistake into one line and exit code 2, and Ctrl-C into one line, in every command."""

    def invoke(self, context: click.Context):
        try:
            return super().invoke(context)
        except InputError as error:
            click.echo(f"ctrpipe: {error}", err=True)
            context.exit(2)
        except (KeyboardInterrupt, Exception) as error:
            if not _is_interrupt(error):
                raise
            click.echo("ctrpipe: interrupted; the same command again goes on from here", err=True)
            context.exit(INTERRUPTED)


def _is_interrupt(error: BaseException) -> bool:
    """Ctrl-C, or what Beam makes of it: a RuntimeError that it caused."""
    return any(isinstance(cause, KeyboardInterrupt) for cause in causes(error))


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(package_name="ctrpipe")
def main() -> None:
    """From a raw impression log to a click-through rate served by TF Serving.

    Exit codes: 0 done, 1 a gate blocked the model or a log is unlike another, 2 wrong usage or input, 130 interrupted
    by Ctrl-C.
    """


@main.command()
@click.argument("config", type=PATH)
@click.option("--data", multiple=True, help="A raw log file or quoted glob; repeat for more. Replaces data.paths.")
@click.option("--output", type=PATH, default=None, help="Result folder. Default: runs/<name of the configuration>.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key: training.epochs=2.")
@click.option("--beam-arg", "beam_args", multiple=True, help="An argument for Beam, which then reads and transforms.")
def run(
    config: pathlib.Path,
    data: tuple[str, ...],
    output: pathlib.Path | None,
    settings: tuple[str, ...],
    beam_args: tuple[str, ...],
) -> None:
    """Run the pipeline that CONFIG (YAML) describes: read, check, transform, train, evaluate, gate, push.

    \b
    Leaves in the result folder:
      models/<model_name>/<version>/  servable by TF Serving (--model_base_path models/<model_name>)
      metrics.json, report.html       what the model is worth
      dead_letter/                    malformed rows with file, line and reason
      tfx/                            artifacts and the ML Metadata store
    Running it again continues an interrupted run, and takes everything unchanged from the cache.
    """
    from pipeline.config import load_config
    from pipeline.runner import run as run_pipeline
    from pipeline.summary import print_summary

    if beam_args:
        settings += (f"beam_args={json.dumps(beam_args)}",)
    loaded = load_config(config, settings)
    folder = output or pathlib.Path("runs") / loaded.name
    metrics = run_pipeline(loaded, list(data) or loaded.data.paths, folder)
    print_summary(folder, loaded)
    if not metrics["blessed"] or metrics["drift_breached"]:
        sys.exit(BLOCKED)


@main.command()
@click.option("--model", type=PATH, required=True, help="DIR/models/<name>, or one version in it.")
@click.option("--input", "inputs", multiple=True, required=True, help="A raw log file or quoted glob; repeatable.")
@click.option("--output", type=PATH, required=True, help="Folder for the Parquet files.")
@click.option("--beam-arg", "beam_args", multiple=True, help="An argument for Beam, e.g. --beam-arg=--runner=...")
def score(model: pathlib.Path, inputs: tuple[str, ...], output: pathlib.Path, beam_args: tuple[str, ...]) -> None:
    """Score a raw log, labelled or not, as a Beam job.

    Writes Parquet with file, row (0-based line), ctr and model_version: one row per line of the input. A malformed
    line has no ctr; it is also in OUTPUT/_dead_letter.
    """
    from pipeline.progress import log_announced
    from pipeline.quiet import load_tensorflow

    load_tensorflow()
    from serving.score import score as score_log

    with log_announced("serving.score"):
        result = score_log(model, list(inputs), output, list(beam_args))
    click.echo(
        f"{result.rows:,} rows in, {result.scored:,} scored, {result.rejected:,} malformed, "
        f"model version {result.model_version}, written to {result.output}"
    )


@main.command()
@click.option("--model_base_path", type=PATH, required=True, help="Folder of the versions: DIR/models/<name>.")
@click.option("--model_name", default="default", show_default=True, help="The name in the URL.")
@click.option("--rest_api_port", type=int, required=True, help="Port of the REST API.")
@click.option("--rest_api_host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--file_system_poll_wait_seconds", type=float, default=1.0, show_default=True, help="New versions.")
@click.option("--rest_api_timeout_in_ms", type=int, default=30000, show_default=True, help="Limit of one request.")
def serve(
    model_base_path: pathlib.Path,
    model_name: str,
    rest_api_port: int,
    rest_api_host: str,
    file_system_poll_wait_seconds: float,
    rest_api_timeout_in_ms: int,
) -> None:
    """Serve a model locally, with TF Serving's REST API: predict, status, metadata."""
    from pipeline.quiet import load_tensorflow

    load_tensorflow()
    from serving.server import serve as serve_model

    def ready(port: int) -> None:
        click.echo(f"Serving {model_name} at http://{rest_api_host}:{port}/v1/models/{model_name}", err=True)

    serve_model(
        str(model_base_path),
        model_name,
        rest_api_port,
        rest_api_host,
        file_system_poll_wait_seconds,
        rest_api_timeout_in_ms,
        ready,
    )


@main.command()
@click.option("--url", required=True, help="http://HOST:PORT/v1/models/NAME[/versions/N]")
@click.option("--input", "file", required=True, type=PATH, help="A raw log, in the format the model was trained on.")
@click.option("--rows", type=click.IntRange(1), default=10, show_default=True, help="How many rows to send.")
@click.option("--model", type=PATH, help="The served model's folder, to read the log's format from.", default=None)
@click.option("--config", type=PATH, help="The run's configuration, instead of --model.", default=None)
def predict(url: str, file: pathlib.Path, rows: int, model: pathlib.Path | None, config: pathlib.Path | None) -> None:
    """Send raw rows to a server and print their probabilities, one line each: row, tab, probability."""
    from pipeline.predict import predict_rows
    from transforms.readers import Reject

    rejects: list[Reject] = []
    printed = 0
    for line, probability in predict_rows(url, file, rows, model, config, rejects.append):
        click.echo(f"{line}\t{probability:.6f}")
        printed += 1
    if rejects:
        first = f"row {rejects[0].line}: {rejects[0].reason}"
        click.echo(f"{len(rejects)} malformed rows were passed over, the first is {first}", err=True)
    if not printed:
        raise InputError(f"{file}: no good row in it; check --input and the log's format")
    if printed < rows:
        click.echo(f"{file} has {printed} good rows, fewer than the {rows} asked for", err=True)


@main.command()
@click.option("--format", "log_format", type=click.Choice(["criteo", "avazu"]), default="criteo", show_default=True)
@click.option("--rows", type=int, default=40_000, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--output", type=PATH, required=True, help="The file to write; .gz compresses.")
def generate(log_format: str, rows: int, seed: int, output: pathlib.Path) -> None:
    """Write a sample log with known true probabilities (beside it, in <output>.truth.parquet)."""
    from transforms.generate import generate as generate_log

    result = generate_log(log_format, rows, seed, output)
    click.echo(
        f"{result.rows:,} rows, {result.positives:,} clicks, best possible AUC {result.best_auc:.4f} and log loss "
        f"{result.log_loss:.4f}, written to {result.path}"
    )


@main.command()
@click.argument("directory", type=PATH)
def report(directory: pathlib.Path) -> None:
    """Rebuild DIRECTORY/report.html of a finished run."""
    from pipeline.report import write_report

    click.echo(str(write_report(directory)))


@main.command()
@click.argument("config", type=PATH)
@click.option("--data", multiple=True, required=True, help="The log in question: a file or quoted glob; repeatable.")
@click.option("--against", multiple=True, required=True, help="The log to compare it with: the same; repeatable.")
@click.option("--kind", type=click.Choice(["drift", "skew"]), default="drift", show_default=True)
@click.option("--output", type=PATH, default=None, help="Folder for drift.json and drift.html.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key of CONFIG.")
def drift(
    config: pathlib.Path,
    data: tuple[str, ...],
    against: tuple[str, ...],
    kind: str,
    output: pathlib.Path | None,
    settings: tuple[str, ...],
) -> None:
    """Compare two logs column by column: exit code 0, or 1 where a column is further away than it may be.

    \b
    --kind drift: DATA is today's log, AGAINST yesterday's; both have labels.
    --kind skew:  DATA is the log that was trained on, AGAINST what was served; neither needs labels.
    The limits are monitoring.max_distance and monitoring.columns of CONFIG.
    """
    from pipeline.quiet import load_tensorflow

    load_tensorflow()
    from pipeline.config import load_config
    from pipeline.drift import compare_logs
    from pipeline.drift_report import print_comparison, write_drift

    loaded = load_config(config, settings)
    workers = loaded.crew()
    limits, rows = loaded.monitoring, loaded.statistics.max_rows
    found = compare_logs(loaded.log_spec, list(data), list(against), kind, limits, rows, loaded.seed, workers)
    for comparison in found["comparisons"]:
        print_comparison(comparison)
    if output:
        click.echo(f"Written: {', '.join(str(path) for path in write_drift(found, output))}")
    if found["breached"]:
        sys.exit(BLOCKED)


@main.command()
@click.argument("config", type=PATH)
@click.option("--data", multiple=True, help="A raw log file or quoted glob; repeat for more. Replaces data.paths.")
@click.option("--output", type=PATH, default=None, help="Result folder. Default: runs/<name of the sweep>.")
@click.option("--grid", multiple=True, metavar="KEY=VALUE,VALUE", help="Values of one key; repeat for a product.")
@click.option("--seeds", type=click.IntRange(1), default=None, help="Trainings per point. Default: 3, or the file's.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key of every point.")
@click.option("--name", default=None, help="The sweep's name. Default: the file's.")
@click.option("--latency", is_flag=True, help="Also measure predictions: 20 batches of 1024 rows, median.")
def sweep(
    config: pathlib.Path,
    data: tuple[str, ...],
    output: pathlib.Path | None,
    grid: tuple[str, ...],
    seeds: int | None,
    settings: tuple[str, ...],
    name: str | None,
    latency: bool,
) -> None:
    """Train many settings on the same data and compare them: mean and standard deviation over the seeds.

    \b
    CONFIG is a run's configuration, with one --grid or more:
      ctrpipe sweep configs/demo.yaml --data log.tsv --grid model.top_k=2,5,10 --grid model.layers=1,2
      ctrpipe sweep configs/demo.yaml --data log.tsv --grid model.name=lr,fm,deepfm --seeds 5
    or a sweep file, whose points need be no product:
      ctrpipe sweep configs/sweeps/attention_net_table1.yaml --data train.tsv
    Leaves in the result folder sweep.json (everything), sweep.csv (one line per training) and sweep.png.

    The log is read and transformed once. Running it again goes on where it was cut. The best point is the best on the
    validation rows; look at the test rows once.
    """
    from pipeline.quiet import load_tensorflow

    load_tensorflow()
    from pipeline.sweep.plan import make_plan
    from pipeline.sweep.run import run_sweep
    from pipeline.sweep.summary import print_sweep, summarise_sweep, write_sweep

    plan = make_plan(config, settings, grid, seeds, name, latency)
    folder = output or pathlib.Path("runs") / plan.name
    summary = summarise_sweep(plan, run_sweep(plan, list(data) or plan.base.data.paths, folder))
    write_sweep(summary, folder)
    print_sweep(summary)
    click.echo(f"Written: {folder}/sweep.json, sweep.csv, sweep.png")


@main.command()
@click.option("--config", type=PATH, default=None, help="A run's configuration, for whose features sizes are counted.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def models(config: pathlib.Path | None, as_json: bool) -> None:
    """List the models with paper, parameters and options; without --config for 39 fields of 5,000 ids each."""
    from pipeline.quiet import load_tensorflow

    load_tensorflow()
    from pipeline.model_table import describe_models, print_models

    where, found = describe_models(config)
    if as_json:
        click.echo(json.dumps(found, indent=1))
    else:
        print_models(where, found)


@main.command()
@click.option("--output", type=PATH, default=pathlib.Path("demo"), show_default=True, help="Result folder.")
@click.option("--rows", type=int, default=40_000, show_default=True)
@click.option("--config", type=PATH, default=pathlib.Path("configs/demo.yaml"), show_default=True)
def demo(output: pathlib.Path, rows: int, config: pathlib.Path) -> None:
    """Generate a log, train Attention-Net on it, serve it, ask for predictions, stop the server."""
    from pipeline.quiet import load_tensorflow

    load_tensorflow()
    from pipeline.demo import run_demo

    if not run_demo(output, rows, config):
        sys.exit(BLOCKED)
