"""A sweep: many settings on the same data."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.data import FOLDER, Data, PathLike, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result, evaluations
from ctrpipe.settings import Config, data_of, grids, output_folder, overrides, source_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN = ("validation_auc", "validation_log_loss", "auc", "log_loss")


@dataclasses.dataclass(frozen=True, repr=False)
class Sweep(Result):
    """A finished sweep. Its table has the means of each point over the seeds; `to_pandas` has a row for each training.

    Attributes:
        output: The sweep's folder, for `ctrpipe.compare`.
        report: The contents of sweep.json.
    """

    output: pathlib.Path
    report: dict[str, Any]

    @property
    def best(self) -> str | None:
        """The name of the point that is best on the validation rows; None where none has a metric."""
        best: str | None = self.report["best"]
        return best

    @property
    def history(self) -> "pd.DataFrame":
        """The evaluations of all trainings, in order, by point and seed."""
        return evaluations(
            [
                ({"point": point["name"], "seed": run["seed"]}, run)
                for point in self.report["points"]
                for run in point["runs"]
            ]
        )

    def _records(self) -> list[dict[str, Any]]:
        from ctrpipe.pipeline.sweep.summary import training_rows  # matplotlib: 0.4 s

        return training_rows(self.report)

    def _table(self) -> Table:
        rows = [[point["name"], *(point["metrics"][key]["mean"] for key in SHOWN)] for point in self.report["points"]]
        return Table(["point", *SHOWN], rows, f"best by {self.report['monitor']}: {self.best}" if self.best else "")

    @in_one_line
    def plot(self) -> "Figure":
        """Returns AUC, log loss and, where it was measured, latency by point, with deviations over the seeds."""
        from ctrpipe.figures import shown  # matplotlib: 0.4 s
        from ctrpipe.pipeline.sweep.plots import sweep_figure

        return shown(sweep_figure(self.report))


@in_one_line
def sweep(
    config: Config,
    data: Data | None = None,
    output: PathLike | None = None,
    *,
    grid: Mapping[str, Sequence[Any]] | None = None,
    seeds: int | None = None,
    name: str | None = None,
    latency: bool = False,
    costs: bool = False,
    keep_models: bool = False,
    run_config: Config | None = None,
    **settings: Any,
) -> Sweep:
    """Trains many settings on the same data and compares them, as `ctrpipe sweep` does; the same call goes on.

    Args:
        config: A run's configuration, as `run` takes it, with a `grid`; or a sweep file, whose points need be no
            product.
        data: The log: files or globs, a DataFrame or a pyarrow Table; None for the configuration's own.
        output: The sweep's folder; None for runs/<name of the sweep>.
        grid: Keys and the values that each takes; every combination is a point.
        seeds: Trainings of each point; None for 3, or what the sweep file says.
        name: The sweep's name; None for the file's.
        latency: Whether to measure predictions too.
        costs: Whether to measure milliseconds a row too, of training and of predictions.
        keep_models: Whether to keep every trained model, for `ctrpipe.load`.
        run_config: Another run's configuration for a sweep file.
        settings: Keys of the configuration to override in every point, as `run` takes them.

    Raises:
        InputError: a file, a point, the data or the folder cannot be used.

    Example:
        >>> found = ctrpipe.sweep("mine.yaml", frame, grid={"model__embedding_dim": [8, 16]}, seeds=2)
        >>> found.to_pandas().groupby("point")["auc"].mean()
    """
    from ctrpipe.common.libraries import load_tensorflow

    load_tensorflow()
    # TensorFlow: 3 s that `import ctrpipe` does without.
    from ctrpipe.pipeline.sweep.plan import make_plan
    from ctrpipe.pipeline.sweep.sweep import sweep as run_sweep

    other = None if run_config is None else source_of(run_config)
    plan = make_plan(source_of(config), overrides(settings), grids(grid or {}), seeds, name, latency, costs, other)
    folder = output_folder(output, plan.name)
    files = files_of(data_of(config, data), folder / FOLDER)
    return Sweep(folder, run_sweep(plan, files, folder, keep_models))
