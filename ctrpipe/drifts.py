"""Measure the drift or skew between two logs."""

import dataclasses
import pathlib
from typing import TYPE_CHECKING, Any, Literal

from ctrpipe.bar import with_bar
from ctrpipe.common.charts import chart_figure
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.data import FOLDER, Data, PathLike, files_of
from ctrpipe.mistakes import in_one_line
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.report.drift import drift_chart, write_drift
from ctrpipe.pipeline.run.trained_model import find_model
from ctrpipe.result import Result
from ctrpipe.runs import ModelLike, folder_of
from ctrpipe.settings import Config, overrides, results_folder, source_of
from ctrpipe.table import Table, first_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclasses.dataclass(frozen=True, repr=False)
class Drift(Result):
    """The distance between two logs, column by column.

    The table and `to_pandas` have one row per column, the most drifted first.

    Attributes:
        report: The contents of drift.json.
        output: The folder with drift.json and drift.html; None if no `output` was given.
    """

    report: dict[str, Any]
    output: pathlib.Path | None

    @property
    def breached(self) -> bool:
        """Whether a column, or with `model` its share of the explanations, exceeds its limit."""
        return bool(self.report["breached"])

    @property
    def _columns(self) -> list[dict[str, Any]]:
        columns: list[dict[str, Any]] = self.report["comparisons"][0]["columns"]
        return columns

    def _records(self) -> list[dict[str, Any]]:
        return [{key: value for key, value in column.items() if key != "moved"} for column in self._columns]

    def _table(self) -> Table:
        rows = [[one["column"], one["distance"], one["threshold"], one["text"] or "ok"] for one in self._columns]
        return first_rows(["column", "distance", "limit", "verdict"], rows, "columns")

    @in_one_line
    def plot(self) -> "Figure":
        """Plots the distance of each column divided by its limit. Values above 1 exceed the limit."""
        return chart_figure([drift_chart(self.report["comparisons"][0])])


@in_one_line
@with_bar
def drift(
    config: Config,
    data: Data,
    against: Data,
    *,
    kind: Literal["drift", "skew"] = "drift",
    model: ModelLike | None = None,
    trust: bool = False,
    output: PathLike | None = None,
    **settings: Any,
) -> Drift:
    """Compares the column distributions of two logs.

    Args:
        config: The configuration, as in `run`. Its `monitoring` section has the limits.
        data: The log to check: files or globs, a DataFrame or a pyarrow Table.
        against: The reference log, of the same types as `data`.
        kind: "drift" compares a new log (`data`) with an earlier one (`against`); both have labels. "skew" compares
            the training log (`data`) with the serving log (`against`); labels are not needed.
        model: A run or version. If given, the share of each column in the model's explanations is compared as well.
        trust: Whether to import the class of `model` if it is not a class of ctrpipe.
        output: Folder for drift.json and drift.html, or its URL in a store. None writes no files.
        settings: Configuration keys to override, as in `run`.

    Returns:
        A `Drift` with the distance and the limit of each column.

    Raises:
        InputError: the configuration, a log or the model cannot be used.

    Example:
        >>> found = ctrpipe.drift("mine.yaml", today, yesterday, monitoring__max_distance__numeric=0.2)
        >>> found.breached, list(found.to_pandas().query("breached")["column"])
        (True, ['price'])
    """
    load_tensorflow()
    # Lazy: TensorFlow, TFX and TFDV take 6 s to import.
    from ctrpipe.pipeline.explain.log_drift import drift_of_logs

    loaded = load_config(source_of(config), overrides(settings))
    source = None if model is None else find_model(folder_of(model), trust)
    with results_folder(output) as folder:
        place = None if folder is None else folder / FOLDER
        report = drift_of_logs(loaded, files_of(data, place), files_of(against, place), kind, source)
        if folder is not None:
            write_drift(report, folder)
    return Drift(report, folder)
