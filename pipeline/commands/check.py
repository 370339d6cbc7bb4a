"""The command `ctrpipe check`."""

import pathlib
import sys

import click

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.exit_codes import MISTAKE
from ctrpipe.common.lines import say
from ctrpipe.common.store_names import with_urls
from ctrpipe.pipeline.commands.options import CONFIG
from ctrpipe.pipeline.commands.run import DATA_HELP


@click.command()
@click.argument("config", type=CONFIG)
@click.option("--data", multiple=True, help=DATA_HELP)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. training.epochs=2.")
def check(config: pathlib.Path, data: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Check CONFIG and a log for problems before a run.

    Takes seconds. Reads at least the first 10,000 rows of the log, and counts the rows of each split if the log has at
    most 256 MB. Exits with code 2 if `ctrpipe run` would fail, and with code 0 if there are only notes.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.run.check import check_before_run

    loaded = load_config(config, settings)
    findings = check_before_run(loaded, list(data) or loaded.data.paths)
    for text in findings.notes:
        say(f"Note:  {text}")
    for text in findings.divided:
        say(text)
    for text in findings.errors:
        say(f"Error: {text}")
    named = {"error": findings.errors, "note": findings.notes}
    counts = ", ".join(f"{len(texts)} {name}{'s' if len(texts) != 1 else ''}" for name, texts in named.items())
    say(f"{findings.read[0].upper()}{findings.read[1:]}; {counts}")
    if findings.errors:
        sys.exit(MISTAKE)
    options = [("--data", one) for one in data] + [("--set", one) for one in settings]
    shown = with_urls(str(config))
    click.echo(next_steps([command_name(), "run", shown, *(part for option in options for part in option)]))
