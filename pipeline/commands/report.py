"""The command `ctrpipe report`."""

import pathlib

import click

from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("directory", type=PATH)
def report(directory: pathlib.Path) -> None:
    """Rewrite the report of a finished run.

    Writes DIRECTORY/report.html, where DIRECTORY is the folder of the run.
    """
    from ctrpipe.pipeline.report.report import write_report  # lazy: jinja2 takes 0.05 s

    click.echo(str(write_report(directory)))
