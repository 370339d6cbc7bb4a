"""The command `ctrpipe models`."""

import json
import pathlib

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import CONFIG


@click.command()
@click.option("--config", type=CONFIG, default=None, help="Count parameters for the features of this configuration.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def models(config: pathlib.Path | None, as_json: bool) -> None:
    """List the models with paper, parameters and options.

    Without --config, the parameters are counted for 39 fields with 5,000 ids each.
    """
    from ctrpipe.pipeline.config.model_table import (  # lazy: rich takes 0.03 s
        print_models,
        read_reference,
    )

    if config is None:
        table = read_reference()
    else:
        load_tensorflow()
        from ctrpipe.pipeline.run.model_sizes import measure_models  # lazy: Keras takes 4 s

        table = measure_models(config)
    if as_json:
        click.echo(json.dumps(table.models, indent=1))
    else:
        print_models(table)
