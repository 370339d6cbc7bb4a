"""The command `ctrpipe demo`."""

import pathlib
import sys

import click

from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import CONFIG, PATH


@click.command()
@click.option("--output", type=PATH, default=pathlib.Path("demo"), show_default=True, help="Result folder.")
@click.option("--rows", type=int, default=40_000, show_default=True, help="Rows of the log.")
@click.option("--config", type=CONFIG, default=None, help="Configuration of the run. Default: the packaged demo.yaml.")
def demo(output: pathlib.Path, rows: int, config: pathlib.Path | None) -> None:
    """Train and serve a model on a generated log.

    Generates a log, trains Attention-Net on it, serves the model, requests predictions, and stops the server.
    """
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s.
    from ctrpipe.pipeline.commands.demo_run import run_demo
    from ctrpipe.pipeline.config.packaged_configs import configs_folder

    if not run_demo(output, rows, config or configs_folder() / "demo.yaml"):
        sys.exit(BLOCKED)
