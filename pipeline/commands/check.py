"""`ctrpipe check`."""

import pathlib
import sys

import click

from ctrpipe.common.exit_codes import MISTAKE
from ctrpipe.pipeline.commands.options import PATH
from ctrpipe.pipeline.commands.run import DATA_HELP


@click.command()
@click.argument("config", type=PATH)
@click.option("--data", multiple=True, help=DATA_HELP)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key: training.epochs=2.")
def check(config: pathlib.Path, data: tuple[str, ...], settings: tuple[str, ...]) -> None:
    """Say in seconds what `ctrpipe run` would stumble over: in CONFIG, and in the first 10,000 rows of the log.

    Exit code 2 where a run would end with an error; notes alone are exit code 0.
    """
    # numpy, pyarrow and pydantic: 0.4 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.draft.check_log import check_log

    loaded = load_config(config, settings)
    found = check_log(loaded, list(data) or loaded.data.paths)
    for text in found.notes:
        click.echo(f"Note:  {text}")
    for text in found.errors:
        click.echo(f"Error: {text}")
    counts = f"{len(found.errors)} errors, {len(found.notes)} notes"
    click.echo(f"{found.rows:,} rows read, {found.rejected:,} malformed; {counts}")
    if found.errors:
        sys.exit(MISTAKE)
