"""The command `ctrpipe run`."""

import json
import pathlib
import sys
from collections.abc import Sequence

import click

from ctrpipe.common.command_lines import next_steps
from ctrpipe.common.exit_codes import BLOCKED
from ctrpipe.common.lines import say
from ctrpipe.common.phases import listed_phases, seconds_by_phase
from ctrpipe.common.stores import is_url
from ctrpipe.pipeline.commands.options import CONFIG, PATH_OR_URL

DATA_HELP = "Raw log: a file, quoted glob, folder of day=... or of KDD Cup 2012; repeatable. Replaces data.paths."


@click.command()
@click.argument("config", type=CONFIG)
@click.option("--data", multiple=True, help=DATA_HELP)
@click.option("--output", type=PATH_OR_URL, default=None, help="Result folder or URL. Default: runs/<name>.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key, e.g. training.epochs=2.")
@click.option(
    "--beam-arg",
    "beam_args",
    multiple=True,
    help="Argument for Beam, which then reads and transforms the log; repeatable.",
)
@click.option(
    "--seeds", type=click.IntRange(1), default=None, help="Training runs of the model and of the baseline. Default: 1."
)
@click.option("--warm-start", metavar="RUN|VERSION", help="Start from the weights of this model, or of `latest`.")
def run(
    config: pathlib.Path,
    data: tuple[str, ...],
    output: pathlib.Path | str | None,
    settings: tuple[str, ...],
    beam_args: tuple[str, ...],
    seeds: int | None,
    warm_start: str | None,
) -> None:
    """Run the training pipeline that CONFIG describes.

    Reads, checks and transforms the log; trains and evaluates the model; pushes it if it passes the gates. CONFIG is a
    YAML file.

    \b
    Writes to the result folder:
      models/<model_name>/<version>/  for `ctrpipe serve` and TF Serving
      metrics.json, report.html       the metrics, and a report with plots
      request.json                    a request with a row of the log, for curl
      seeds.json                      with --seeds, all runs of model and baseline
      dead_letter/                    malformed rows with file, line and reason
      tfx/                            artifacts and the ML Metadata store

    With --output s3://... or gs://..., the run works in a local folder and writes the results to the store.

    Repeat the command to continue an interrupted run. All unchanged steps are taken from the cache.
    """
    # Lazy: numpy, pyarrow and pydantic take 0.4 s to import.
    from ctrpipe.common.processes import end_forked_workers
    from ctrpipe.pipeline.config import load_config, with_parent
    from ctrpipe.pipeline.report.summary import print_summary
    from ctrpipe.pipeline.run.next_steps import after_block, after_push
    from ctrpipe.pipeline.run.prepared import joined
    from ctrpipe.pipeline.run.run import run as run_pipeline
    from ctrpipe.pipeline.run.stored_run import output_of_run

    if beam_args:
        settings += (f"beam_args={json.dumps(beam_args)}",)
    if seeds is not None:
        settings += (f"evaluation.seeds={seeds}",)
    loaded = load_config(config, settings)
    if warm_start is not None:
        loaded = with_parent(loaded, warm_start)
    place = output or pathlib.Path("runs") / loaded.name
    with output_of_run(place, loaded.serving.model_name) as folder:
        files = joined(list(data) or loaded.data.paths, loaded, folder)
        metrics = run_pipeline(loaded, files, folder)
    print_summary(folder, loaded)
    if is_url(place):
        say(f"Stored: {place}")
    say(f"Time:   {listed_phases(seconds_by_phase())}")
    if metrics["blessed"]:
        print(next_steps(*after_push(loaded, files, place, folder)))
    else:
        commands = after_block(_as_given(config, data, output, settings, warm_start), loaded, place, folder)
        print(next_steps(*commands, title="Next, to see what the model learned, and to push it anyway:"))
    end_forked_workers()  # so the CPU time of this command, which a replay measures, includes all its processes
    if not metrics["blessed"] or metrics["drift_breached"]:
        sys.exit(BLOCKED)


def _as_given(
    config: pathlib.Path,
    data: Sequence[str],
    output: pathlib.Path | str | None,
    settings: Sequence[str],
    warm_start: str | None,
) -> list[str]:
    """Returns the arguments of this command; --seeds and --beam-arg are among the settings."""
    options = [("--data", one) for one in data] + [("--set", one) for one in settings]
    options += [("--output", str(output))] if output is not None else []
    options += [("--warm-start", warm_start)] if warm_start is not None else []
    return ["run", str(config), *(part for option in options for part in option)]
