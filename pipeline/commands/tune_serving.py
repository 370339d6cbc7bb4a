"""The command `ctrpipe tune-serving`."""

import pathlib

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.lines import say
from ctrpipe.common.output_folder import check_output
from ctrpipe.common.progress import announce
from ctrpipe.pipeline.commands.options import MODEL, PATH
from ctrpipe.serving.layout import find_version


def _numbers(_context: click.Context, parameter: click.Parameter, value: str) -> list[int]:
    parts = value.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise InputError(f"--{parameter.name}={value}: whole numbers above 0, separated by commas")
    return [int(part) for part in parts]


@click.command("tune-serving")
@click.argument("model", type=MODEL)
@click.option("--rows", default="1,100", show_default=True, callback=_numbers, help="Rows per request.")
@click.option("--clients", default="1,8", show_default=True, callback=_numbers, help="Concurrent requests.")
@click.option("--signature", default="serving_packed", show_default=True, help="Signature to call.")
@click.option(
    "--seconds", type=click.FloatRange(0.05), default=0.5, show_default=True, help="Seconds per load and round."
)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Rounds of measurements.")
@click.option("--output", type=PATH, default=pathlib.Path("runs/tuned"), show_default=True, help="Result folder.")
def tune_serving(
    model: pathlib.Path,
    rows: list[int],
    clients: list[int],
    signature: str,
    seconds: float,
    rounds: int,
    output: pathlib.Path,
) -> None:
    """Find the best threads and batching to serve a model.

    MODEL is a run, DIR/models/<name>, or one version in it. Takes a few minutes. Uses the requests stored with
    the model. The best setting has the highest throughput in rows/s: the geometric mean over all pairs of --rows and
    --clients. The result is a file of flags for `ctrpipe serve` and tensorflow_model_server:

    \b
      env $(cat runs/tuned/environment) ctrpipe serve --model_base_path=DIR \\
          $(cat runs/tuned/flags)

    Also writes session.config with the same settings, batching.config if batching helps, and tune.json with all
    measurements.
    """
    # Lazy: numpy and rich take 0.2 s to import.
    from rich.table import Table

    from ctrpipe.common.terminal import console, print_table
    from ctrpipe.serving.tuning.tune import FLAGS, flags, rows_of_table, tune, write
    from ctrpipe.serving.tuning.tune_process import ClientLoad

    version = find_version(model)
    check_output(output)
    loads = [ClientLoad(count, number) for count in rows for number in clients]
    trials = tune(version, signature, loads, seconds, rounds, announce)
    write(trials, loads, version, signature, output)
    table = Table(title=f"{model}, {signature}: rows/s (median / 99th percentile in ms)")
    for name in ("setting", *(f"{load.rows} rows x {load.clients}" for load in loads), "score"):
        table.add_column(name, justify="left" if name == "setting" else "right")
    for row in rows_of_table(trials, loads):
        table.add_row(*row)
    print_table(console(), table)
    say(f"Best: {' '.join(flags(trials[0].setting, output))}")
    say(f"Written: {output}/{FLAGS} and what it needs")
