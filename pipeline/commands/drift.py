"""The command `ctrpipe drift`."""

import pathlib
import sys

import click

from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.output_folder import check_output
from ctrpipe.common.store_folders import results_at
from ctrpipe.pipeline.commands.options import CONFIG, MODEL, PATH_OR_URL


@click.command()
@click.argument("config", type=CONFIG)
@click.option("--data", multiple=True, required=True, help="The log to check: a file or quoted glob; repeatable.")
@click.option("--against", multiple=True, required=True, help="Reference log: a file or quoted glob; repeatable.")
@click.option(
    "--kind",
    type=click.Choice(["drift", "skew"]),
    default="drift",
    show_default=True,
    help="What is compared; see above.",
)
@click.option("--model", type=MODEL, default=None, help="A run or version: also compare its explanations.")
@click.option("--trust", is_flag=True, help="Import the class of --model if it is not a class of ctrpipe.")
@click.option("--output", type=PATH_OR_URL, default=None, help="Folder or URL for drift.json and drift.html.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key of CONFIG.")
def drift(
    config: pathlib.Path,
    data: tuple[str, ...],
    against: tuple[str, ...],
    kind: str,
    model: pathlib.Path | None,
    trust: bool,
    output: pathlib.Path | str | None,
    settings: tuple[str, ...],
) -> None:
    """Compare the column distributions of two logs.

    \b
    --kind drift  --data is a new log, --against an earlier one, with labels
    --kind skew   --data is the training log, --against the serving log, which
                  needs no labels

    Exits with code 1 if a column exceeds its limit. The limits are monitoring.max_distance, monitoring.columns and
    monitoring.attributions of CONFIG. With --model, also compares the share of each column in the model's explanations.
    """
    load_tensorflow()
    # Lazy: TensorFlow, TFX and TFDV take 6 s to import.
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.pipeline.explain.log_drift import drift_of_logs
    from ctrpipe.pipeline.report.drift import print_attributions, print_comparison, write_drift
    from ctrpipe.pipeline.run.trained_model import find_model

    loaded = load_config(config, settings)
    if isinstance(output, pathlib.Path):
        check_output(output)
    result = drift_of_logs(loaded, data, against, kind, find_model(model, trust) if model else None)
    for comparison in result["comparisons"]:
        print_comparison(comparison)
    if model:
        print_attributions(result["attributions"])
    if output:
        with results_at(output) as place:
            written = write_drift(result, place.folder)
        say(f"Written: {', '.join(map(place.shown, written))}")
    if result["breached"]:
        sys.exit(BLOCKED)
