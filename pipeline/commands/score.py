"""`ctrpipe score`."""

import pathlib

import click

from pipeline.commands.options import PATH


@click.command()
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
