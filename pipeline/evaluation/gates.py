"""The gates as TFMA's configuration, and the table of the gates that a model passed or failed."""

import pathlib
from typing import Any

import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2

from pipeline.config import Bounds, Evaluation, Gates
from pipeline.evaluation.tail import TAIL

_METRICS = ("auc", "log_loss", "calibration")


def eval_config(gates: Gates, evaluation: Evaluation, labels: dict[str, str]) -> tfma.EvalConfig:
    """Returns TFMA's configuration of metrics, slices and thresholds.

    Args:
        gates: The thresholds, on all rows.
        evaluation: The slices.
        labels: The label's column by task; the gates apply to the first task.
    """
    higher, lower = tfma.MetricDirection.HIGHER_IS_BETTER, tfma.MetricDirection.LOWER_IS_BETTER
    auc = gates.auc or Bounds(min=0.0)  # every model passes it; without any threshold TFMA blesses no model
    metrics = [
        _metric("ExactAUC", auc, gates.max_drop.get("auc"), higher),
        _metric("ExactLogLoss", gates.log_loss, gates.max_drop.get("log_loss"), lower),
        _metric("ExactRIG", None, None, higher),
        _metric("ExactCalibration", gates.calibration, None, lower),
        _metric("RowCount", None, None, higher),
    ]
    task, label = next(iter(labels.items()))
    slices = [*evaluation.slices, *([TAIL] if evaluation.tail else [])]
    return tfma.EvalConfig(
        model_specs=[tfma.ModelSpec(label_key=label, prediction_key=task)],
        slicing_specs=[tfma.SlicingSpec()] + [tfma.SlicingSpec(feature_keys=[column]) for column in slices],
        metrics_specs=[tfma.MetricsSpec(metrics=metrics)],
    )


def _metric(name: str, bounds: Bounds | None, drop: float | None, direction: int) -> tfma.MetricConfig:
    threshold = tfma.MetricThreshold()
    if bounds:
        value = threshold.value_threshold
        if bounds.min is not None:
            value.lower_bound.value = bounds.min
        if bounds.max is not None:
            value.upper_bound.value = bounds.max
    if drop is not None:
        change = threshold.change_threshold
        change.direction = direction
        change.absolute.value = -drop if direction == tfma.MetricDirection.HIGHER_IS_BETTER else drop
    # A plain threshold would apply to every slice, also to one of a single row, whose AUC is 0.
    overall = config_pb2.PerSliceMetricThreshold(slicing_specs=[tfma.SlicingSpec()], threshold=threshold)
    return tfma.MetricConfig(
        class_name=name,
        module="pipeline.evaluation.click_metrics",
        per_slice_thresholds=[overall] if bounds or drop is not None else [],
    )


def read_gates(evaluation: pathlib.Path, gates: Gates) -> list[dict[str, Any]]:
    """Returns one row per gate: metric, kind (absolute or change), bound, value, passed, reason."""
    result = tfma.load_eval_result(str(evaluation))
    values = _overall(result)
    changes = _overall(result, "_diff")
    rows: list[dict[str, Any]] = []
    for metric, bounds in (("auc", gates.auc), ("log_loss", gates.log_loss), ("calibration", gates.calibration)):
        value = values[metric]
        if bounds and bounds.min is not None:
            rows.append(_row(metric, "absolute", f"at least {bounds.min:g}", value, value >= bounds.min))
        if bounds and bounds.max is not None:
            rows.append(_row(metric, "absolute", f"at most {bounds.max:g}", value, value <= bounds.max))
    for metric, drop in gates.max_drop.items():
        bound = f"at most {drop:g} worse than the last blessed model"
        if metric not in changes:
            rows.append(_row(metric, "change", bound, None, True, "no model has been blessed before"))
            continue
        worse = 0.0 - changes[metric] if metric == "auc" else changes[metric]
        rows.append(_row(metric, "change", bound, worse, worse <= drop))
    return rows


def _row(metric: str, kind: str, bound: str, value: float | None, passed: bool, reason: str = "") -> dict[str, Any]:
    if not reason:
        reason = f"{value:.4f} is {bound}" if passed else f"{value:.4f} is not {bound}"
    return {"metric": metric, "kind": kind, "bound": bound, "value": value, "passed": bool(passed), "reason": reason}


def _overall(result: tfma.EvalResult, suffix: str = "") -> dict[str, float]:
    """Returns TFMA's metrics over all rows; with the suffix `_diff`, their differences to the last blessed model's."""
    values: dict[str, float] = {}
    for slice_key, by_output in result.slicing_metrics:
        if slice_key:
            continue
        for by_class in by_output.values():
            for metrics in by_class.values():
                for name in _METRICS:
                    value = metrics.get(name + suffix, {})
                    if "doubleValue" in value:
                        values[name] = value["doubleValue"]
    return values
