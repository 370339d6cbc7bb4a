"""`ctrpipe report`."""

import pathlib

import click

from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("directory", type=PATH)
def report(directory: pathlib.Path) -> None:
    """Write DIRECTORY/report.html of a finished run again."""
    from ctrpipe.pipeline.report.report import write_report  # jinja2: 0.05 s that other commands do without

    click.echo(str(write_report(directory)))
