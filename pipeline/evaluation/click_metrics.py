"""Exact TFMA metrics on blocks of rows: AUC, log loss, RIG, calibration and the number of rows.

TFMA's own metrics read one row at a time, in Python. TFMA and Keras compute AUC on thresholds that are evenly spaced
from 0 to 1. With click-through rates of a few in a thousand, nearly all predictions lie between two of them. Here all
metrics of a model and a slice are computed from the counts of its distinct predictions.
"""

from collections.abc import Callable, Iterable
from typing import Any

import apache_beam as beam
import numpy as np
from tensorflow_model_analysis.metrics import metric_types, metric_util
from tensorflow_model_analysis.proto import config_pb2

from ctrpipe.common.metrics import EPSILON, auc_of_counts, entropy

MERGE_AT = 1 << 16  # equal predictions are merged once there are at least this many new rows
Counts = tuple[np.ndarray, np.ndarray, np.ndarray]  # distinct predictions, and the clicks and rows of each
NOTHING: Counts = (np.zeros(0), np.zeros(0), np.zeros(0))


def auc(predictions: np.ndarray, clicks: np.ndarray, rows: np.ndarray) -> float:
    """Returns the area under the ROC curve by ranks.

    Ties count half. It is 0 if there is only one class, as in TFMA.

    Args:
        predictions: The distinct predictions, ascending, [N].
        clicks, rows: The number of clicks and of rows per distinct prediction, [N].
    """
    others = rows - clicks
    return auc_of_counts(clicks, others) if clicks.any() and others.any() else 0.0


def log_loss(predictions: np.ndarray, clicks: np.ndarray, rows: np.ndarray) -> float:
    """Returns the log loss, as ctrpipe.common.metrics.log_loss; NaN without rows.

    See `auc` for the arguments.
    """
    p = np.clip(predictions.astype(np.float64), EPSILON, 1 - EPSILON)
    loss = -(clicks @ np.log(p) + (rows - clicks) @ np.log1p(-p))
    return float(loss / rows.sum()) if len(rows) else float("nan")


def rig(predictions: np.ndarray, clicks: np.ndarray, rows: np.ndarray) -> float:
    """Returns the RIG, as ctrpipe.common.metrics.rig; NaN for one class only. See `auc` for the arguments."""
    base = entropy(float(clicks.sum() / rows.sum())) if len(rows) else 0.0
    return 1 - log_loss(predictions, clicks, rows) / base if base else float("nan")


def calibration(predictions: np.ndarray, clicks: np.ndarray, rows: np.ndarray) -> float:
    """Returns the mean prediction divided by the observed click rate; NaN without clicks, as in TFMA.

    See `auc`.
    """
    return float(predictions.astype(np.float64) @ rows / clicks.sum()) if clicks.any() else float("nan")


def row_count(predictions: np.ndarray, clicks: np.ndarray, rows: np.ndarray) -> float:
    return float(rows.sum())


def _computations(value: Callable[[np.ndarray, np.ndarray, np.ndarray], float]) -> Callable[..., Any]:
    """Returns the function that creates a metric's computations for TFMA.

    The metrics of a model share one CountClicks, because TFMA runs computations with equal keys once.
    """

    def computations(
        name: str,
        eval_config: config_pb2.EvalConfig | None = None,
        model_name: str = "",
        output_name: str = "",
        example_weighted: bool = False,
    ) -> list[Any]:
        of = {"model_name": model_name, "output_name": output_name, "example_weighted": example_weighted}
        counts = metric_types.MetricKey("_clicks", **of)  # TFMA does not write metrics whose names start with `_`
        key = metric_types.MetricKey(name, **of)

        def result(metrics: dict[metric_types.MetricKey, Counts]) -> dict[metric_types.MetricKey, float]:
            return {key: value(*metrics[counts])}

        combiner = CountClicks(counts, eval_config)
        return [
            metric_types.MetricComputation(keys=[counts], preprocessors=None, combiner=combiner),
            metric_types.DerivedMetricComputation(keys=[key], result=result),
        ]

    merged: Callable[..., Any] = metric_util.merge_per_key_computations(computations)
    return merged


class ExactAUC(metric_types.Metric):
    def __init__(self, name: str = "auc"):
        super().__init__(_computations(auc), name=name)


class ExactLogLoss(metric_types.Metric):
    def __init__(self, name: str = "log_loss"):
        super().__init__(_computations(log_loss), name=name)


class ExactRIG(metric_types.Metric):
    def __init__(self, name: str = "rig"):
        super().__init__(_computations(rig), name=name)


class ExactCalibration(metric_types.Metric):  # TFMA would resolve the name Calibration to its own class
    def __init__(self, name: str = "calibration"):
        super().__init__(_computations(calibration), name=name)


class RowCount(metric_types.Metric):
    def __init__(self, name: str = "example_count"):
        super().__init__(_computations(row_count), name=name)


class CountClicks(beam.CombineFn):
    """Counts rows and clicks of each distinct prediction, in 20 bytes each.

    Inputs hold [N] labels and predictions.

    A row counts by its weight.
    """

    def __init__(self, key: metric_types.MetricKey, eval_config: config_pb2.EvalConfig | None):
        self._key, self._eval_config = key, eval_config

    def create_accumulator(self) -> list[Counts]:
        return []

    def add_input(self, parts: list[Counts], element: metric_types.StandardMetricInputs) -> list[Counts]:
        triples = metric_util.to_label_prediction_example_weight(
            element,
            eval_config=self._eval_config,
            model_name=self._key.model_name,
            output_name=self._key.output_name,
            example_weighted=bool(self._key.example_weighted),
            flatten=False,
        )
        for label, prediction, weight in triples:
            each = np.broadcast_to(weight, len(label))  # without weights, TFMA passes one value for all rows
            parts.append((prediction, label * each, each))
        # Merging sorts. It waits until there are as many new rows as merged ones, so each row is sorted only a few
        # times.
        unmerged = sum(len(values) for values, _, _ in parts[1:])
        return self.compact(parts) if unmerged >= max(MERGE_AT, len(parts[0][0])) else parts

    def compact(self, parts: list[Counts]) -> list[Counts]:
        return [_merged(parts)] if parts else []

    def merge_accumulators(self, accumulators: Iterable[list[Counts]]) -> list[Counts]:
        return self.compact([part for parts in accumulators for part in parts])

    def extract_output(self, parts: list[Counts]) -> dict[metric_types.MetricKey, Counts]:
        return {self._key: _merged(parts) if parts else NOTHING}


def _merged(parts: list[Counts]) -> Counts:
    values, places = np.unique(np.concatenate([part[0] for part in parts]), return_inverse=True)
    clicks = np.bincount(places, np.concatenate([part[1] for part in parts]), len(values))
    return values, clicks, np.bincount(places, np.concatenate([part[2] for part in parts]), len(values))
