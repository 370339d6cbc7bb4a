"""`ctrpipe tune`."""

import pathlib
from typing import Literal

import click

from ctrpipe.common.errors import InputError
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.pipeline.commands.options import PATH


def _milliseconds(_context: click.Context, _parameter: click.Parameter, value: str | None) -> float | None:
    if value is None:
        return None
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise InputError(f"--p99-ms {value}: expected milliseconds above 0, as 5")
    return number


@click.command()
@click.argument("config", type=PATH)
@click.option("--data", multiple=True, help="A raw log file or quoted glob; repeat for more. Replaces data.paths.")
@click.option("--budget", metavar="TIME", help="Time of all trials: 2h, 90m, 1h30m. What is spent stays spent.")
@click.option("--trials", metavar="NUMBER", help="Trials in all, those of earlier calls included.")
@click.option("--output", type=PATH, default=None, help="Result folder. Default: runs/<name>-tune.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Trials at the same time.")
@click.option("--p99-ms", callback=_milliseconds, metavar="X", help="Refuse models that take longer to serve one row.")
@click.option(
    "--objective", type=click.Choice(["log_loss", "auc"]), help="On validation rows. Default: training.monitor."
)
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Override one key of every trial.")
def tune(
    config: pathlib.Path,
    data: tuple[str, ...],
    budget: str | None,
    trials: str | None,
    output: pathlib.Path | None,
    workers: int,
    p99_ms: float | None,
    objective: Literal["log_loss", "auc"] | None,
    settings: tuple[str, ...],
) -> None:
    """Search for a model's best settings within a budget, by validation rows alone.

    \b
      ctrpipe tune configs/criteo/deepfm.yaml --data train.tsv --trials 50
      ctrpipe tune mine.yaml --data train.tsv --budget 2h --workers 4
    Searched is what `search` in CONFIG says, else a space that fits the model:
      search: {model.embedding_dim: [8, 16, 32], training.learning_rate: {log: [1e-4, 1e-2]}}
    Leaves in the result folder:
      best.yaml     the best configuration, for `ctrpipe run`
      tune.html     what mattered: importance, parallel coordinates, the budget's curve
      tune.json     every trial
      study.sqlite  Optuna's study

    The log is read and transformed once. Trials that lag behind are stopped. Running it again goes on where it was cut,
    or, with a larger budget, where it ended. With one worker the same seed gives the same trials.
    """
    # numpy, pydantic and Optuna: 0.8 s that `ctrpipe --help` does without.
    from ctrpipe.pipeline.tune.plan import make_plan, read_budget

    limits = read_budget(budget, trials)
    load_tensorflow()
    plan = make_plan(config, settings, limits, objective, workers, p99_ms)
    from ctrpipe.pipeline.run.prepared import joined
    from ctrpipe.pipeline.tune.results import print_summary
    from ctrpipe.pipeline.tune.run import run_tune

    folder = output or pathlib.Path("runs") / f"{plan.name}-tune"
    base = plan.space.base
    summary = run_tune(plan, joined(list(data) or base.data.paths, base, folder), folder)
    print_summary(summary, folder)
