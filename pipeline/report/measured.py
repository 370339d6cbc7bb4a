"""The figures of a report that need the test rows: intervals, the gain curve, and each slice's share of the log loss.

This module is separate from the page, because importing numpy and pyarrow takes longer than rendering a report from
cached figures.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common import metrics
from ctrpipe.common.estimates import (
    Estimate,
    auc_estimate,
    calibration_estimate,
    log_loss_estimate,
    rig_estimate,
)
from ctrpipe.common.significance import NORMAL_QUANTILE
from ctrpipe.pipeline.compare.rows_and_seeds import difference
from ctrpipe.pipeline.compare.sides import Compared
from ctrpipe.pipeline.evaluation.elements import frequent_slices
from ctrpipe.pipeline.evaluation.scored_rows import SLICE, about_rows, as_numpy, read_table

TOP = 0.1  # share of the rows, those with the highest predictions, whose share of the clicks is reported
PLOTTED = ("label", "probability", "uncalibrated_probability", "baseline_probability", "weight")
Columns = dict[str, np.ndarray]
Estimator = Callable[[np.ndarray, np.ndarray, np.ndarray], Estimate | None]
ESTIMATORS: dict[str, Estimator] = {
    "auc": auc_estimate,
    "log_loss": log_loss_estimate,
    "rig": rig_estimate,
    "calibration": calibration_estimate,
}
MOST = {"auc": 1.0, "rig": 1.0}  # intervals end where the metric does
LEAST = {"auc": 0.0, "log_loss": 0.0}


def read_predictions(predictions: bytes) -> tuple[Columns, pa.Table]:
    """Returns the available columns of PLOTTED, and the whole table, for the rows with a known label.

    Rows without a weight have the weight 1.

    Args:
        predictions: The contents of predictions.parquet: label and probability. With a calibration, a baseline or
            weights also the uncalibrated probability, the baseline's probability or the weight.

    Raises:
        ValueError: the predictions are not such a Parquet file.
    """
    try:
        table = read_table(pa.BufferReader(predictions))
        table = table.filter(pc.invert(pc.is_nan(table["label"])))  # pa.array of a numpy array would import pandas
        columns = {"probability": as_numpy(table["probability"])}
        columns |= {name: as_numpy(table[name]) for name in PLOTTED if name in table.column_names}
    except (pa.ArrowException, OSError, LookupError) as error:
        raise ValueError(f"predictions.parquet: {error}") from error
    columns.setdefault("weight", np.ones(len(table), np.float32))
    return columns, table


def measure(predictions: bytes, slices: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Returns the report's figures in addition to metrics.json, as JSON values.

    Args:
        predictions: See `read_predictions`.
        slices: The slices of metrics.json, by column and value.

    Returns:
        `model`, `baseline` and `uncalibrated`: 95% intervals by metric. `ahead`: the difference in AUC from the
        baseline, tested. `top`: the share of the clicks in the TOP of the rows. `slices`: by column and value, `cost`,
        the share of the total log loss in its rows, and the intervals `auc` and `calibration`. Undefined figures are
        None.
    """
    columns, table = read_predictions(predictions)
    of = {"model": "probability", "baseline": "baseline_probability", "uncalibrated": "uncalibrated_probability"}
    measures: dict[str, Any] = {name: _intervals(columns, column, ESTIMATORS) for name, column in of.items()}
    return {**measures, "ahead": _ahead(columns), "top": _top(columns), "slices": _slices(columns, table, slices)}


def _intervals(columns: Columns, column: str, estimators: Mapping[str, Estimator]) -> dict[str, list[float] | None]:
    if column not in columns:
        return dict.fromkeys(estimators)
    rows = columns["label"], columns[column], columns["weight"]
    return {name: interval_of(name, estimator(*rows)) for name, estimator in estimators.items()}


def interval_of(name: str, estimate: Estimate | None) -> list[float] | None:
    """Returns the 95% interval over test rows; None if the standard error is unknown.

    The interval of a calibration is symmetric on a logarithmic scale, because its error is due to the number of clicks
    in the denominator. With few clicks, an interval of value ± error would end too low.
    """
    if estimate is None or not estimate.standard_error:
        return None
    half = NORMAL_QUANTILE * estimate.standard_error
    if name == "calibration":
        times = math.exp(half / estimate.value)
        return [estimate.value / times, estimate.value * times]
    low, high = estimate.value - half, estimate.value + half
    return [max(low, LEAST.get(name, low)), min(high, MOST.get(name, high))]


def _ahead(columns: Columns) -> dict[str, Any] | None:
    if "baseline_probability" not in columns:
        return None
    rows = columns["label"], columns["weight"]
    names = ("baseline_probability", "probability")
    sides = [auc_estimate(rows[0], columns[name], rows[1]) for name in names]
    known = [side for side in sides if side is not None]
    return Compared(difference(known[:1], known[1:]), None).to_json() if len(known) == len(sides) else None


def gain_curve(labels: np.ndarray, scores: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the cumulative shares of the rows and of the clicks, `[P]` each, by descending score. Both begin with 0.

    Rows with equal scores share one point. The line between two points is the expectation over their random order.

    Args:
        labels: 0 or 1, `[N]`, with at least one click.
        scores: Scores, `[N]`. A higher score means that a click is more likely.
        weights: Row weights, `[N]`.
    """
    clicks, rows = metrics.clicks_and_rows(labels, scores, weights)
    return np.append(0, rows / rows[-1]), np.append(0, clicks / clicks[-1])


def _top(columns: Columns) -> float | None:
    if not columns["label"].any():
        return None
    return float(np.interp(TOP, *gain_curve(columns["label"], columns["probability"], columns["weight"])))


def _slices(
    columns: Columns, table: pa.Table, slices: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, dict[str, Any]]]:
    weights = columns["weight"].astype(np.float64)
    lost = weights * metrics.log_losses(columns["label"], columns["probability"])
    separators = about_rows(table).get("separators", {})
    judged = {name: ESTIMATORS[name] for name in ("auc", "calibration")}
    by_column: dict[str, dict[str, dict[str, Any]]] = {}
    for column, values in slices.items():
        if SLICE + column not in table.column_names:
            continue
        encoded = table[SLICE + column].combine_chunks()
        encoded = encoded if isinstance(encoded, pa.DictionaryArray) else encoded.dictionary_encode()
        texts, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)
        by_column[column] = {}
        for value, rows in frequent_slices(texts, codes, separators.get(column, ""), len(values)):
            own = {name: values[rows] for name, values in columns.items()}
            cost = float(lost[rows].sum() / lost.sum()) if lost.sum() else None
            by_column[column][value] = {"cost": cost, **_intervals(own, "probability", judged)}
    return by_column
