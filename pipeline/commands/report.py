"""The command `ctrpipe report`."""

import pathlib
import webbrowser

import click

from ctrpipe.common.lines import say
from ctrpipe.pipeline.commands.options import PATH_OR_URL


@click.command()
@click.argument("directory", type=PATH_OR_URL)
@click.option("--open", "opened", is_flag=True, help="Show it in a browser.")
def report(directory: pathlib.Path | str, opened: bool) -> None:
    """Rewrite the report of a finished run.

    Writes report.html to the folder of the run. DIRECTORY is this folder or its URL, the folder of the model that the
    run pushed, or a version of the model.
    """
    if isinstance(directory, str):
        from ctrpipe.pipeline.run.stored_run import write_stored_report  # lazy: pyarrow takes 0.2 s

        url = write_stored_report(directory)
        say(f"Written: {url}")
        if opened:
            say("A page in a store cannot be opened; copy it to this machine", err=True)
        return
    from ctrpipe.pipeline.report.report import write_report  # lazy: jinja2 takes 0.05 s

    path = write_report(directory)
    say(f"Written: {path}")
    if opened and not webbrowser.open(path.resolve().as_uri()):
        say("No browser was found on this machine; open the file in one", err=True)
