"""The command `ctrpipe init`."""

import pathlib

import click

from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("log", nargs=-1, required=True)
@click.option("--output", type=PATH, help="File to write. Default: <name of the log>.yaml in the current folder.")
@click.option("--label", help="The label column. Default: the most likely one.")
@click.option("--dataset", metavar="NAME", help="LOG is the folder of a published data set: see below.")
def init(log: tuple[str, ...], output: pathlib.Path | None, label: str | None, dataset: str | None) -> None:
    """Draft a configuration from the first rows of LOG.

    Infers the format, the header, the kind of each column and the label from the first 10,000 rows. The commented
    configuration runs without changes. Guesses to check are printed, and marked with ? in the file.

    `--dataset` knows the files of a published data set by their names and columns, in the folder LOG: criteo,
    criteo_1tb, avazu, kddcup2012, movielens, mind, taobao, kuairand and amazon. Nothing is downloaded.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.draft.page import draft, draft_of_known, write_draft

    text, unsure = draft_of_known(dataset, log, label) if dataset else draft(log, label)
    path = write_draft(text, output)
    for sentence in unsure:
        click.echo(f"Unsure: {sentence}")
    click.echo(f"Written: {path}; next: ctrpipe check {path}, ctrpipe run {path}")
