"""`ctrpipe drift`."""

import pathlib
import sys

import click

from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.output_folder import check_output
from ctrpipe.pipeline.commands.options import PATH


@click.command()
@click.argument("config", type=PATH)
@click.option("--data", multiple=True, required=True, help="The log in question: a file or quoted glob; repeatable.")
@click.option("--against", multiple=True, required=True, help="The log to compare it with: the same; repeatable.")
@click.option("--kind", type=click.Choice(["drift", "skew"]), default="drift", show_default=True)
@click.option("--model", type=PATH, default=None, help="Also compare what this run or version's answers rest on.")
@click.option("--output", type=PATH, default=None, help="Folder for drift.json and drift.html.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key of CONFIG.")
def drift(
    config: pathlib.Path,
    data: tuple[str, ...],
    against: tuple[str, ...],
    kind: str,
    model: pathlib.Path | None,
    output: pathlib.Path | None,
    settings: tuple[str, ...],
) -> None:
    """Compare two logs column by column: exit code 0, or 1 where a column is above its limit.

    \b
    --kind drift: DATA is today's log, AGAINST yesterday's; both have labels.
    --kind skew:  DATA is the log that was trained on, AGAINST what was served; neither needs labels.
    The limits are monitoring.max_distance, monitoring.columns and monitoring.attributions of CONFIG.
    --model compares each column's share of the model's explanations, too.
    """
    load_tensorflow()
    # TensorFlow, TFX and TFDV: 6 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.explain.log_drift import drift_of_logs
    from ctrpipe.pipeline.report.drift import print_attributions, print_comparison, write_drift
    from ctrpipe.pipeline.run.trained_model import find_model

    loaded = load_config(config, settings)
    if output:
        check_output(output)
    result = drift_of_logs(loaded, data, against, kind, find_model(model) if model else None)
    for comparison in result["comparisons"]:
        print_comparison(comparison)
    if model:
        print_attributions(result["attributions"])
    if output:
        click.echo(f"Written: {', '.join(str(path) for path in write_drift(result, output))}")
    if result["breached"]:
        sys.exit(BLOCKED)
