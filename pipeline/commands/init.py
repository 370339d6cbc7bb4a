"""`ctrpipe init`."""

import pathlib

import click

from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("log", nargs=-1, required=True)
@click.option("--output", type=PATH, help="The file to write. Default: <name of the log>.yaml in this folder.")
@click.option("--label", help="The column of the label. Default: the one that looks most like it.")
def init(log: tuple[str, ...], output: pathlib.Path | None, label: str | None) -> None:
    """Look at LOG and write a commented configuration that runs as it is.

    Looks at the first 10,000 rows: format, header, the kinds of the columns, the label. What it was unsure of is
    printed, and marked with ? in the file.
    """
    # numpy, pyarrow and pydantic: 0.4 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.draft.page import draft, write_draft

    text, unsure = draft(log, label)
    path = write_draft(text, output)
    for sentence in unsure:
        click.echo(f"Unsure: {sentence}")
    click.echo(f"Written: {path}; next: ctrpipe check {path}, ctrpipe run {path}")
