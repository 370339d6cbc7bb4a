"""`ctrpipe models`."""

import json
import pathlib

import click

from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.option("--config", type=PATH, default=None, help="A run's configuration, for whose features sizes are counted.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def models(config: pathlib.Path | None, as_json: bool) -> None:
    """List the models with paper, parameters and options; without --config for 39 fields of 5,000 ids each."""
    from ctrpipe.pipeline.config.model_table import (  # rich: 0.03 s that `ctrpipe --help` does without
        print_models,
        read_reference,
    )

    if config is None:
        table = read_reference()
    else:
        load_tensorflow()
        from ctrpipe.pipeline.demo.model_sizes import (
            measure_models,  # Keras: 4 s, which the table that is kept does without
        )

        table = measure_models(config)
    if as_json:
        click.echo(json.dumps(table.models, indent=1))
    else:
        print_models(table)
