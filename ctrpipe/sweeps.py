"""Train many settings on the same data and compare them."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ctrpipe.bar import with_bar
from ctrpipe.common.figures import shown
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.common.store_folders import written_output
from ctrpipe.data import FOLDER, Data, PathLike, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.result import Result, evaluations
from ctrpipe.settings import Config, data_of, grids, output_place, overrides, source_of
from ctrpipe.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHOWN = ("validation_auc", "validation_gauc", "validation_log_loss", "auc", "gauc", "log_loss")


@dataclasses.dataclass(frozen=True, repr=False)
class Sweep(Result):
    """A finished sweep.

    The table has the means over the seeds per point. `to_pandas` has one row per training run.

    Attributes:
        output: The folder of the sweep, for `ctrpipe.compare`.
        report: The contents of sweep.json.
    """

    output: pathlib.Path
    report: dict[str, Any]

    @property
    def best(self) -> str | None:
        """The name of the best point on the validation rows; None if no point has a metric."""
        best: str | None = self.report["best"]
        return best

    @property
    def history(self) -> "pd.DataFrame":
        """The evaluations of all training runs in order, by point and seed."""
        return evaluations(
            [
                ({"point": point["name"], "seed": run["seed"]}, run)
                for point in self.report["points"]
                for run in point["runs"]
            ]
        )

    def _records(self) -> list[dict[str, Any]]:
        from ctrpipe.pipeline.sweep.summary import training_rows  # lazy: matplotlib takes 0.4 s

        return training_rows(self.report)

    def _table(self) -> Table:
        points = self.report["points"]
        has_groups = any(point["metrics"]["gauc"]["mean"] is not None for point in points)
        columns = [key for key in SHOWN if has_groups or "gauc" not in key]
        rows = [[point["name"], *(point["metrics"][key]["mean"] for key in columns)] for point in points]
        return Table(["point", *columns], rows, f"best by {self.report['monitor']}: {self.best}" if self.best else "")

    @in_one_line
    def plot(self) -> "Figure":
        """Plots AUC, log loss and latency (if measured) by point, with standard deviations over the seeds."""
        from ctrpipe.pipeline.sweep.plots import sweep_figure  # lazy: matplotlib takes 0.4 s

        return shown(sweep_figure(self.report))


@in_one_line
@with_bar
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
    """Trains many settings on the same data with several seeds, and compares them.

    After an interruption, the same call continues the sweep.

    Args:
        config: A run configuration, as in `run`, together with `grid`; or a sweep file, which can list points that do
            not form a grid.
        data: The log: files or globs, a DataFrame or a pyarrow Table. None uses the configuration's `data.paths`.
        output: Folder of the sweep, or its URL in a store. None uses runs/<name of the sweep>.
        grid: Configuration keys and the list of values of each. Every combination is a point.
        seeds: Number of training runs per point. None uses the value of the sweep file, or 3.
        name: Name of the sweep. None uses the name in the file.
        latency: Whether to also measure the latency of predictions.
        costs: Whether to also measure the milliseconds per row of training and of predictions.
        keep_models: Whether to keep every trained model, for `ctrpipe.load`.
        run_config: With a sweep file: the run configuration to use in place of the one that the file names.
        settings: Configuration keys to override in every point, as in `run`.

    Returns:
        A `Sweep` with the metrics of all points and the best one.

    Raises:
        InputError: a file, a point, the data or the folder cannot be used.

    Example:
        >>> found = ctrpipe.sweep("mine.yaml", frame, grid={"model__embedding_dim": [8, 16]}, seeds=2)
        >>> found.to_pandas().groupby("point")["auc"].mean()
    """
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s to import.
    from ctrpipe.pipeline.run.prepared import MADE_OF_LOG
    from ctrpipe.pipeline.sweep.plan import make_plan
    from ctrpipe.pipeline.sweep.sweep import sweep as run_sweep

    other = None if run_config is None else source_of(run_config)
    plan = make_plan(source_of(config), overrides(settings), grids(grid or {}), seeds, name, latency, costs, other)
    with written_output(output_place(output, plan.name), leave_out=MADE_OF_LOG) as place:
        files = files_of(data_of(config, data), place.folder / FOLDER)
        return Sweep(place.folder, run_sweep(plan, files, place.folder, keep_models))
