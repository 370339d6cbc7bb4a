"""`ctrpipe predict`."""

import pathlib

import click

from pipeline.commands.options import PATH
from transforms.errors import InputError


@click.command()
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
