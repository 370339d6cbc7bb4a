"""`ctrpipe report`."""

import pathlib

import click

from pipeline.commands.options import PATH


@click.command()
@click.argument("directory", type=PATH)
def report(directory: pathlib.Path) -> None:
    """Rebuild DIRECTORY/report.html of a finished run."""
    from pipeline.report.report import write_report

    click.echo(str(write_report(directory)))
