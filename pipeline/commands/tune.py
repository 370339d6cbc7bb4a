"""The command `ctrpipe tune`."""

import pathlib
from typing import get_args

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.lines import say
from ctrpipe.common.monitors import Monitor
from ctrpipe.common.store_folders import written_output
from ctrpipe.pipeline.commands.options import CONFIG, PATH_OR_URL


def _milliseconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise InputError(f"--p99-ms {value}: expected milliseconds above 0, such as 5")
    return number


@click.command()
@click.argument("config", type=CONFIG)
@click.option("--data", multiple=True, help="Raw log: a file or quoted glob; repeatable. Replaces data.paths.")
@click.option(
    "--budget", metavar="TIME", help="Time for all trials and the comparison, including earlier calls: 2h, 90m, 1h30m."
)
@click.option("--trials", metavar="NUMBER", help="Total number of trials, including earlier calls.")
@click.option("--output", type=PATH_OR_URL, default=None, help="Result folder or URL. Default: runs/<name>-tune.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Number of parallel trials.")
@click.option(
    "--p99-ms",
    callback=_milliseconds,
    metavar="X",
    help="Reject models whose p99 latency for one row exceeds X ms. Needs --workers 1.",
)
@click.option("--objective", type=click.Choice(get_args(Monitor)), help="Validation metric. Default: training.monitor.")
@click.option(
    "--seeds",
    type=click.IntRange(0),
    default=3,
    show_default=True,
    help="Training runs of the best and of the default at the end, compared on test rows; 0 for none.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override a key in every trial.")
def tune(
    config: pathlib.Path,
    data: tuple[str, ...],
    budget: str | None,
    trials: str | None,
    output: pathlib.Path | str | None,
    workers: int,
    p99_ms: float | None,
    objective: Monitor | None,
    seeds: int,
    settings: tuple[str, ...],
) -> None:
    """Search for the best hyperparameters of a model.

    \b
      ctrpipe tune configs/criteo/deepfm.yaml --data train.tsv --trials 50
      ctrpipe tune mine.yaml --data train.tsv --budget 2h --workers 4

    \b
    The search space is the section `search` of CONFIG, by default one that
    fits the model:
      search:
        model.embedding_dim: [8, 16, 32]
        training.learning_rate: {log: [1e-4, 1e-2]}

    \b
    Writes to the result folder:
      best.yaml      the best configuration, for `ctrpipe run`
      proposed.yaml  the configuration to run: the best if it is significantly
                     better, otherwise the unchanged one
      tune.html      report: importance of keys, all trials, best value by budget
      tune.json      all trials
      study.sqlite   the Optuna study

    Trials are compared on the validation rows only. At the end, the best and the unchanged configuration are trained
    with several seeds each and compared on the test rows; --budget includes this time. The log is read and transformed
    once. Unpromising trials are pruned. Repeat the command to continue an interrupted search, or with a larger budget
    to extend it. With one worker, the same seed gives the same trials.
    """
    # Lazy: numpy, pydantic and Optuna take 0.8 s to import.
    from ctrpipe.pipeline.tune.plan import make_plan, read_budget

    limits = read_budget(budget, trials)
    load_tensorflow()
    plan = make_plan(config, settings, limits, objective, workers, p99_ms, seeds)
    # Lazy: Keras takes 4 s, and load_tensorflow, which comes first, suppresses TensorFlow's start-up lines.
    from ctrpipe.pipeline.run.prepared import MADE_OF_LOG, joined
    from ctrpipe.pipeline.tune.results import print_summary
    from ctrpipe.pipeline.tune.run import run_tune

    base = plan.space.base
    with written_output(output or pathlib.Path("runs") / f"{plan.name}-tune", leave_out=MADE_OF_LOG) as place:
        folder = place.folder
        summary = run_tune(plan, joined(list(data) or base.data.paths, base, folder), folder)
        print_summary(summary, folder)
    if place.name != str(folder):
        say(f"Stored: {place.name}")
