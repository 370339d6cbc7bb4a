"""The command `ctrpipe configs`."""

import pathlib

import click

from ctrpipe.common.command_lines import command_name, next_steps
from ctrpipe.common.lines import say
from ctrpipe.common.output_folder import check_output
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.option("--output", type=PATH, default=None, help="Copy them to this folder. Existing files are kept.")
def configs(output: pathlib.Path | None) -> None:
    """List or copy the packaged configurations.

    \b
      ctrpipe configs --output configs
      ctrpipe run configs/criteo/deepfm.yaml --data train.tsv
    """
    from ctrpipe.pipeline.config.packaged_configs import config_names, copy_configs  # lazy: pydantic takes 0.2 s

    if output is None:
        click.echo("\n".join(config_names()))
        return
    check_output(output)
    copy_configs(output)
    say(f"Written: {output}, with {len(config_names())} configurations")
    click.echo(next_steps([command_name(), "run", f"{output}/criteo/deepfm.yaml", "--data", "train.tsv"]))
