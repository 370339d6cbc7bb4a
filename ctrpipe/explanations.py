"""Explain a model (column importance, column pairs) or a single prediction (attributions)."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from ctrpipe.bar import with_bar
from ctrpipe.common.charts import BarChart, chart_figure
from ctrpipe.common.libraries import load_tensorflow
from ctrpipe.data import FOLDER, Data, Frame, PathLike, files_of, is_frame, write_frame
from ctrpipe.data import scratch as scratch_folder
from ctrpipe.mistakes import in_one_line
from ctrpipe.pipeline.report.explanation import ADDED, importance_bars, row_bars
from ctrpipe.result import Result, data_frame
from ctrpipe.runs import ModelLike, folder_of
from ctrpipe.settings import results_folder
from ctrpipe.table import Table, first_rows, interval

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# FILE:LINE, a row's values by column, or a table of one row.
Row: TypeAlias = str | Mapping[str, Any] | Frame


@dataclasses.dataclass(frozen=True, repr=False)
class Explanation(Result):
    """The permutation importance of the columns, and statistics of column pairs.

    The table and `to_pandas` have one row per column, the most important first: by how much the log loss rises, and the
    AUC falls, when the column is permuted.

    Attributes:
        report: The contents of explanation.json.
        pruned: The configuration without the unimportant columns (pruned.yaml); None without `prune`.
    """

    report: dict[str, Any]
    pruned: pathlib.Path | None

    @property
    def pairs(self) -> "pd.DataFrame":
        """The pairs of columns and their joint effects, as a pandas DataFrame."""
        return data_frame([_flat(pair) for pair in self.report["pairs"]])

    def _records(self) -> list[dict[str, Any]]:
        return [
            {
                "column": one["name"],
                **{
                    name: value
                    for metric in ("log_loss", "auc")
                    for name, value in _spread(metric, one[metric]).items()
                },
                "p_value": one["p_value"],
            }
            for one in self.report["columns"]
        ]

    def _table(self) -> Table:
        rows = [
            [one["name"], one["log_loss"]["value"], interval(one["log_loss"]["interval"]), one["auc"]["value"]]
            for one in self.report["columns"]
        ]
        return first_rows(["lost without", "log_loss", "95%", "auc"], rows, "columns")

    @in_one_line
    def plot(self) -> "Figure":
        """Plots the importance of each column in log loss and AUC, with 95% confidence intervals."""
        return chart_figure(importance_bars(self.report["columns"]))


@dataclasses.dataclass(frozen=True, repr=False)
class RowExplanation(Result):
    """The attribution of one prediction to the columns of the row.

    The table and `to_pandas` have one row per method and column, the largest contribution to the logit first.

    Attributes:
        probability: The probability that the served model predicts for the row.
        by_method: Maps each method ("gradients", "shapley") to a dict with the `logit` of the row, the logit of the
            `baseline`, and the contributions of the `columns`.
    """

    probability: float
    by_method: dict[str, dict[str, Any]]

    def _records(self) -> list[dict[str, Any]]:
        return [
            {"method": method, "column": one["name"], "value": _text(one), "logit": one["logit"], "error": one["error"]}
            for method, attributed in self.by_method.items()
            for one in attributed["columns"]
        ]

    def _table(self) -> Table:
        rows = [[record[key] for key in ("method", "column", "value", "logit")] for record in self._records()]
        shown = first_rows(["method", "column", "value", "adds to the logit"], rows, "columns")
        below = f"probability {self.probability:.4f}"
        return dataclasses.replace(shown, below=f"{shown.below}; {below}" if shown.below else below)

    @in_one_line
    def plot(self) -> "Figure":
        """Plots the contribution of each column to the logit, by method."""
        title = f"probability {self.probability:.4f}"
        methods = self.by_method.items()
        return chart_figure([BarChart(f"{name}: {title}", row_bars(one["columns"]), ADDED) for name, one in methods])


@in_one_line
@with_bar
def explain(
    model: ModelLike,
    data: Data | None = None,
    *,
    row: Row | None = None,
    baseline: Row | Literal["average", "missing"] = "average",
    method: Literal["gradients", "shapley", "both"] | None = None,
    orders: int = 200,
    groups: Mapping[str, Sequence[str]] | None = None,
    slice: tuple[str, str] | None = None,
    rows: int = 20_000,
    repeats: int = 2,
    pairs: int = 10,
    prune: float | None = None,
    seed: int = 0,
    trust: bool = False,
    output: PathLike | None = None,
) -> Explanation | RowExplanation:
    """Explains a model by permutation importance or, given `row`, one prediction by attributions.

    An explanation on a run's own test rows is also added to the report of the run.

    Args:
        model: A finished run (pushed or not), the folder of a model's versions, or one version.
        data: A log with labels: files or globs, a DataFrame or a pyarrow Table. None uses the run's test rows.
        row: The row to explain: a dict of values by column, a DataFrame with one row, or "FILE:LINE".
        baseline: With `row`: the reference that the row is compared with. "average" uses rows of the log, "missing" a
            row of missing values. Any other value is a row, as in `row`.
        method: With `row`: integrated gradients, Shapley values or both. None uses gradients if the model has them.
        orders: With `row`: number of column orders to sample for Shapley values.
        groups: Columns to permute together, by group name.
        slice: A column and a value. Only rows with this value are used.
        rows: Number of rows to sample and score.
        repeats: Number of permutations per column, 1 or 2.
        pairs: Number of column pairs to permute.
        prune: An AUC. Writes pruned.yaml to `output`: the run's configuration without the columns whose joint removal
            costs less AUC than this.
        seed: Random seed of the sample and of the permutations.
        trust: Whether to import the model's class if it is not a class of ctrpipe.
        output: Folder for the JSON file and, without `row`, for an HTML page, or its URL in a store. None writes no
            file.

    Returns:
        An `Explanation` of the model, or a `RowExplanation` of `row`.

    Raises:
        InputError: the model, the log, a column or the row cannot be used.

    Example:
        >>> ctrpipe.explain("runs/mine").to_pandas().head(3)
        >>> ctrpipe.explain("runs/mine", row={"I1": 3.0, "C1": "68fd1e64"}).plot()
    """
    load_tensorflow()
    # Lazy: TensorFlow takes 3 s to import.
    from ctrpipe.pipeline.explain.explain import Settings
    from ctrpipe.pipeline.explain.question import explain_model, explain_row

    source = folder_of(model)
    settings = Settings(rows, repeats, pairs, groups or {}, slice, prune, seed)
    with results_folder(output) as folder:
        files = files_of(data, None if folder is None else folder / FOLDER)
        if row is None:
            of_model = explain_model(source, files, settings, folder, trust)
            return Explanation(of_model.explanation, of_model.pruned)
        compared = baseline if baseline in ("average", "missing") else _line_of(baseline)
        line = _line_of(row)
        of_row = explain_row(source, line, files, settings, str(compared), orders, method, folder, trust)
        by_method = {one.method: dataclasses.asdict(one) for one in of_row.by_method}
        return RowExplanation(of_row.by_method[0].probability, by_method)


def _line_of(row: Row) -> str:
    """Returns a row as FILE:LINE. A table or dict is written to a file first, and its first row counts."""
    if isinstance(row, str):
        return row
    if not is_frame(row) and isinstance(row, Mapping):
        row = pa.table({name: [value] for name, value in row.items()})
    return f"{write_frame(row, scratch_folder())}:1"


def _spread(metric: str, measured: Mapping[str, Any]) -> dict[str, Any]:
    low, high = measured["interval"]
    return {metric: measured["value"], f"{metric}_low": low, f"{metric}_high": high}


def _flat(values: Mapping[str, object], place: str = "") -> dict[str, Any]:
    """Flattens nested dicts, joining the keys with "_": `interplay_bits`."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{place}{name}_") if isinstance(value, Mapping) else {f"{place}{name}": value}
    return flat


def _text(column: Mapping[str, Any]) -> str:
    return " | ".join("-" if value is None else str(value) for value in column["value"])
