"""`ctrpipe demo`."""

import pathlib
import sys

import click

from common.exit_codes import BLOCKED
from pipeline.commands.options import PATH


@click.command()
@click.option("--output", type=PATH, default=pathlib.Path("demo"), show_default=True, help="Result folder.")
@click.option("--rows", type=int, default=40_000, show_default=True)
@click.option("--config", type=PATH, default=None, help="Default: ctrpipe's own demo.yaml.")
def demo(output: pathlib.Path, rows: int, config: pathlib.Path | None) -> None:
    """Generate a log, train Attention-Net on it, serve it, ask for predictions, stop the server."""
    from common.libraries import load_tensorflow

    load_tensorflow()
    from pipeline.demo import run_demo
    from pipeline.packaged_configs import configs_folder

    if not run_demo(output, rows, config or configs_folder() / "demo.yaml"):
        sys.exit(BLOCKED)
