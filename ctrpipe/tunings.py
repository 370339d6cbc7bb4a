"""A study: a model's best settings within a budget."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, Literal

from ctrpipe.data import FOLDER, Data, PathLike, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result, data_frame
from ctrpipe.settings import Config, data_of, output_folder, overrides, source_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Tuning(Result):
    """A finished study. Its table has the best trial; `to_pandas` has a row for each trial.

    Attributes:
        output: The study's folder.
        best: The best configuration's file, for `run`.
        report: The contents of tune.json.
    """

    output: pathlib.Path
    best: pathlib.Path
    report: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """The best trial's settings, by key of the configuration."""
        return dict(self.report["best"]["settings"])

    @property
    def page(self) -> pathlib.Path:
        """The page's file, tune.html."""
        return self.output / "tune.html"

    @property
    def history(self) -> "pd.DataFrame":
        """The evaluations of all trials, in order: the best value of the objective up to each."""
        objective = self.report["objective"]
        return data_frame(
            [
                {"trial": trial["number"], "evaluation": evaluation, objective: value}
                for trial in self.report["trials"]
                for evaluation, value in trial["curve"]
            ]
        )

    def _records(self) -> list[dict[str, Any]]:
        left_out = ("settings", "curve")
        return [
            {**{key: value for key, value in trial.items() if key not in left_out}, **trial["settings"]}
            for trial in self.report["trials"]
        ]

    def _table(self) -> Table:
        best = self.report["best"]
        rows = [[self.report["objective"], best["value"]], ["trials", len(self.report["trials"])]]
        return Table([str(self.output), ""], [*rows, *map(list, self.settings.items())])

    @in_one_line
    def plot(self) -> "Figure":
        """Returns the value of each trial and the best up to it, by the training steps that were spent."""
        from ctrpipe.figures import shown  # matplotlib: 0.4 s
        from ctrpipe.pipeline.tune.plots import BUDGET, study_figures

        return shown(study_figures(self.report)[BUDGET])


@in_one_line
def tune(
    config: Config,
    data: Data | None = None,
    output: PathLike | None = None,
    *,
    trials: int | None = None,
    budget: str | None = None,
    workers: int = 1,
    p99_ms: float | None = None,
    objective: Literal["log_loss", "auc"] | None = None,
    **settings: Any,
) -> Tuning:
    """Searches for a model's best settings within a budget, by validation rows alone; the same call goes on.

    Args:
        config: The configuration, as `run` takes it; its `search` says what is searched, else the model does.
        data: The log: files or globs, a DataFrame or a pyarrow Table; None for the configuration's own.
        output: The study's folder; None for runs/<name of the configuration>-tune.
        trials: Trials in all, those of earlier calls included; this, `budget` or both are given.
        budget: Time of all trials, as "2h" or "90m".
        workers: Trials at the same time, each in a process of its own.
        p99_ms: The milliseconds that one row may take to be served, at the 99th percentile.
        objective: The validation metric; None for training.monitor.
        settings: Keys of the configuration to override, as `run` takes them.

    Raises:
        InputError: the configuration, its search space, the data, the budget or the folder cannot be used.

    Example:
        >>> tuning = ctrpipe.tune("mine.yaml", "train.tsv", trials=50)
        >>> run = ctrpipe.run(tuning.best, "train.tsv", "runs/tuned")
    """
    # Optuna, numpy and pydantic: 0.8 s that `import ctrpipe` does without.
    from ctrpipe.common.libraries import load_tensorflow
    from ctrpipe.pipeline.tune.plan import make_plan, read_budget

    limits = read_budget(budget, None if trials is None else str(trials))
    load_tensorflow()
    plan = make_plan(source_of(config), overrides(settings), limits, objective, workers, p99_ms)
    from ctrpipe.pipeline.run.prepared import joined
    from ctrpipe.pipeline.tune.results import BEST
    from ctrpipe.pipeline.tune.run import run_tune

    folder = output_folder(output, f"{plan.name}-tune")
    base = plan.space.base
    files = files_of(data_of(config, data), folder / FOLDER)
    summary = run_tune(plan, joined(files or base.data.paths, base, folder), folder)
    return Tuning(folder, folder / BEST, summary.report)
