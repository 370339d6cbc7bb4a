"""The command `ctrpipe report`."""

import pathlib
import webbrowser

import click

from ctrpipe.common.lines import say
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("directory", type=PATH)
@click.option("--open", "opened", is_flag=True, help="Show it in a browser.")
def report(directory: pathlib.Path, opened: bool) -> None:
    """Rewrite the report of a finished run.

    Writes DIRECTORY/report.html. DIRECTORY is the folder of the run; the folder of the model that it pushed, or of a
    version, names its run.
    """
    from ctrpipe.pipeline.report.report import write_report  # lazy: jinja2 takes 0.05 s

    path = write_report(directory)
    say(f"Written: {path}")
    if opened and not webbrowser.open(path.resolve().as_uri()):
        say("No browser was found on this machine; open the file in one", err=True)
