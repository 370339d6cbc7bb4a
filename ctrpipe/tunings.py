"""Search for the best hyperparameters of a model within a budget."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any

from ctrpipe.bar import with_bar
from ctrpipe.common.figures import shown
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.monitors import Monitor
from ctrpipe.common.store_folders import written_output
from ctrpipe.data import FOLDER, Data, PathLike, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result, data_frame
from ctrpipe.settings import Config, data_of, output_place, overrides, source_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Tuning(Result):
    """A finished search. The table has the best trial; `to_pandas` has one row per trial.

    Attributes:
        output: The folder of the search.
        best: The file with the best configuration, for `run`.
        report: The contents of tune.json.
    """

    output: pathlib.Path
    best: pathlib.Path
    report: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """The settings of the best trial, by configuration key."""
        return dict(self.report["best"]["settings"])

    @property
    def proposed(self) -> pathlib.Path | None:
        """The file with the configuration to run: the best if it is significantly better, otherwise the default.

        None if the two were not compared.
        """
        confirmation = self.report["confirmation"]
        return self.output / "proposed.yaml" if confirmation and confirmation["proposed"] else None

    @property
    def page(self) -> pathlib.Path:
        """The path of the report, tune.html."""
        return self.output / "tune.html"

    @property
    def history(self) -> "pd.DataFrame":
        """The evaluations of all trials in order: the best value of the objective so far in the trial."""
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
        """Plots the value of each trial and the best value so far, by training steps spent."""
        from ctrpipe.pipeline.tune.plots import BUDGET, study_figures  # lazy: matplotlib takes 0.4 s

        return shown(study_figures(self.report)[BUDGET])


@in_one_line
@with_bar
def tune(
    config: Config,
    data: Data | None = None,
    output: PathLike | None = None,
    *,
    trials: int | None = None,
    budget: str | None = None,
    workers: int = 1,
    p99_ms: float | None = None,
    objective: Monitor | None = None,
    seeds: int = 3,
    **settings: Any,
) -> Tuning:
    """Searches for the hyperparameters with the best metric on the validation rows, within a budget.

    The same call continues an interrupted search. With a larger budget, it extends a finished one.

    Args:
        config: The configuration, as in `run`. Its `search` section is the search space; without it, the model's
            default search space is used.
        data: The log: files or globs, a DataFrame or a pyarrow Table. None uses the configuration's `data.paths`.
        output: Folder of the search, or its URL in a store. None uses runs/<name of the configuration>-tune.
        trials: Total number of trials, including those of earlier calls. Give `trials`, `budget` or both.
        budget: Total time of all trials and the comparison at the end, such as "2h" or "90m".
        workers: Number of trials to run in parallel, each in its own process.
        p99_ms: Upper limit of the 99th percentile of the time to serve one row, in milliseconds. Needs `workers=1`.
        objective: The validation metric to optimize. None uses `training.monitor`.
        seeds: Number of training runs of the best and of the default configuration, which are compared on the test rows
            at the end. 0 for no comparison.
        settings: Configuration keys to override in every trial, as in `run`.

    Returns:
        A `Tuning` with the best configuration and all trials.

    Raises:
        InputError: the configuration, its search space, the data, the budget or the folder cannot be used.

    Example:
        >>> tuning = ctrpipe.tune("mine.yaml", "train.tsv", trials=50)
        >>> run = ctrpipe.run(tuning.best, "train.tsv", "runs/tuned")
    """
    # Lazy: Optuna, numpy and pydantic take 0.8 s to import.
    from ctrpipe.pipeline.tune.plan import make_plan, read_budget

    limits = read_budget(budget, None if trials is None else str(trials))
    load_tensorflow()
    plan = make_plan(source_of(config), overrides(settings), limits, objective, workers, p99_ms, seeds)
    # Lazy: Keras takes 4 s, and load_tensorflow, which comes first, suppresses TensorFlow's start-up lines.
    from ctrpipe.pipeline.run.prepared import MADE_OF_LOG, joined
    from ctrpipe.pipeline.tune.results import BEST
    from ctrpipe.pipeline.tune.run import run_tune

    base = plan.space.base
    with written_output(output_place(output, f"{plan.name}-tune"), leave_out=MADE_OF_LOG) as place:
        folder = place.folder
        files = files_of(data_of(config, data), folder / FOLDER)
        summary = run_tune(plan, joined(files or base.data.paths, base, folder), folder)
    return Tuning(folder, folder / BEST, summary.report)
