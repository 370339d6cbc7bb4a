"""Builds TFMA's configuration for the gates, and the table of gates that a model passed or failed."""

import math
import operator
import pathlib
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2

from ctrpipe.pipeline.config import Bounds, CalibrationBounds, Evaluation, Gates
from ctrpipe.pipeline.evaluation.estimates import (
    Estimate,
    auc_estimate,
    calibration_estimate,
    log_loss_estimate,
    rig_estimate,
)
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows
from ctrpipe.pipeline.evaluation.tail import TAIL

ESTIMATES = {
    "auc": auc_estimate,
    "log_loss": log_loss_estimate,
    "rig": rig_estimate,
    "calibration": calibration_estimate,
}
# Why a value of each kind of gate may be no finite number, although all predictions of the model are.
UNDEFINED = {
    "absolute": "not defined on these test rows: all of them have the same label",
    "slice": "not a finite number",
    "change": "not a finite number: the last blessed model's predictions of these test rows are not",
}


def eval_config(
    gates: Gates, evaluation: Evaluation, labels: dict[str, str], weight: str | None = None
) -> config_pb2.EvalConfig:
    """Returns TFMA's configuration of metrics, slices and thresholds.

    Args:
        gates: The thresholds, which apply to all rows together.
        evaluation: The slices.
        labels: The label column by task. The gates apply to the first task.
        weight: The column of row weights; None if all rows count once.
    """
    higher, lower = tfma.MetricDirection.HIGHER_IS_BETTER, tfma.MetricDirection.LOWER_IS_BETTER
    auc = gates.auc or Bounds(min=0.0)  # every model passes this bound; without any threshold TFMA blesses no model
    drops = {} if gates.max_drop_confidence else gates.max_drop  # TFMA has no paired test; see _sure_change
    metrics = [
        _metric("ExactAUC", auc, drops.get("auc"), higher),
        _metric("ExactLogLoss", gates.log_loss, drops.get("log_loss"), lower),
        _metric("ExactRIG", gates.rig, None, higher),
        _metric("ExactCalibration", gates.calibration, None, lower),
        _metric("RowCount", None, None, higher),
    ]
    task, label = next(iter(labels.items()))
    slices = [*evaluation.slices, *([TAIL] if evaluation.tail else [])]
    return config_pb2.EvalConfig(
        model_specs=[config_pb2.ModelSpec(label_key=label, prediction_key=task, example_weight_key=weight)],
        slicing_specs=[config_pb2.SlicingSpec()] + [config_pb2.SlicingSpec(feature_keys=[column]) for column in slices],
        metrics_specs=[config_pb2.MetricsSpec(metrics=metrics)],
    )


def _metric(name: str, bounds: Bounds | None, drop: float | None, direction: int) -> config_pb2.MetricConfig:
    threshold = config_pb2.MetricThreshold()
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
    # A plain threshold would apply to every slice, even to a slice of one row, whose AUC is 0.
    overall = config_pb2.PerSliceMetricThreshold(slicing_specs=[config_pb2.SlicingSpec()], threshold=threshold)
    return config_pb2.MetricConfig(
        class_name=name,
        module="ctrpipe.pipeline.evaluation.click_metrics",
        per_slice_thresholds=[overall] if bounds or drop is not None else [],
    )


def read_gates(
    evaluation: pathlib.Path, gates: Gates, scored: ScoredRows, last_blessed: np.ndarray | None
) -> list[dict[str, Any]]:
    """Returns one row per gate: metric, kind (absolute, slice or change), bound, value, passed, reason.

    Args:
        evaluation: The folder of TFMA's files.
        gates: The limits.
        scored: The model's predictions. The gates apply to the first task.
        last_blessed: The last blessed model's predictions of that task, [N]; None for a first model.
    """
    result = tfma.load_eval_result(str(evaluation))
    values = _overall(result)
    task = next(iter(scored.labels))
    last_blessed = None if last_blessed is None else last_blessed[scored.known(task)]
    scored = scored.labelled(task)
    labels, probabilities, weights = scored.labels[task], scored.probabilities[task], scored.weights
    rows: list[dict[str, Any]] = []
    absolute = {"auc": gates.auc, "log_loss": gates.log_loss, "rig": gates.rig, "calibration": gates.calibration}
    for metric, bounds in absolute.items():
        if bounds:
            estimate = ESTIMATES[metric](labels, probabilities, weights) if bounds.confidence else None
            rows += _absolute(metric, bounds, values.get(metric, math.nan), estimate)
    if limits := gates.calibration:
        rows += [_of_slices(column, limits, scored, task) for column in limits.slices]
    changes = _overall(result, "_diff")
    for metric, drop in gates.max_drop.items():
        bound = f"at most {drop:g} worse than the last blessed model"
        if metric not in changes or last_blessed is None:
            rows.append(gate_row(metric, "change", bound, None, True, "no model has been blessed before"))
            continue
        worse = 0.0 - changes[metric] if metric == "auc" else changes[metric]
        if gates.max_drop_confidence is None:
            rows.append(gate_row(metric, "change", bound, worse, worse <= drop))
            continue
        both = [ESTIMATES[metric](labels, each, weights) for each in (probabilities, last_blessed)]
        rows.append(_sure_change(metric, bound, worse, drop, gates.max_drop_confidence, both))
    return rows


def _absolute(metric: str, bounds: Bounds, value: float, estimate: Estimate | None) -> Iterator[dict[str, Any]]:
    """Yields the rows of a metric's lower and upper limit.

    If the bounds have a confidence level, `estimate` provides the standard error of the metric.
    """
    sides = (("at least", bounds.min, operator.ge, -1), ("at most", bounds.max, operator.le, 1))
    for name, limit, keeps, direction in sides:
        if limit is None:
            continue
        bound = f"{name} {limit:g}"
        if bounds.confidence is None:
            yield gate_row(metric, "absolute", bound, value, keeps(value, limit))
        elif estimate is None:
            yield gate_row(
                metric, "absolute", bound, value, False, f"{value:.4f} has no error on so few rows of a class"
            )
        else:
            worst = value + direction * _quantile(bounds.confidence) * estimate.standard_error
            passed = keeps(worst, limit)
            said = f"{value:.4f}, at worst {worst:.4f} with {bounds.confidence:.0%} confidence, {_is(passed)} {bound}"
            yield gate_row(metric, "absolute", bound, value, passed, said)


def _sure_change(
    metric: str, bound: str, worse: float, drop: float, confidence: float, both: Sequence[Estimate | None]
) -> dict[str, Any]:
    """Returns the row of a change gate with a confidence level.

    The gate fails only if a paired test is confident that the metric is worse by more than the limit.
    """
    ours, last = both
    if ours is None or last is None:
        return gate_row(metric, "change", bound, worse, True, f"{worse:.4f} has no error on so few rows of a class")
    best = worse - _quantile(confidence) * ours.minus(last).standard_error
    passed = best <= drop
    said = f"{worse:.4f}, at best {best:.4f} with {confidence:.0%} confidence, {_is(passed)} {bound}"
    return gate_row(metric, "change", bound, worse, passed, said)


def _of_slices(column: str, bounds: CalibrationBounds, scored: ScoredRows, task: str) -> dict[str, Any]:
    """Returns the row for the value of a column whose calibration is farthest from 1."""
    assert bounds.max_error is not None  # the configuration sets both or none
    values = scored.slices[column]
    codes, texts = values.indices.to_numpy(), values.dictionary.to_pylist()
    counts = np.bincount(codes, minlength=len(texts))
    judged = np.flatnonzero(counts >= bounds.min_rows)
    bound = f"within {bounds.max_error:g} of 1 for each {column} of {bounds.min_rows:,} rows or more"
    if not len(judged):
        return gate_row("calibration", "slice", bound, None, True, f"no {column} has {bounds.min_rows:,} rows")
    weights = 1 if scored.weights is None else scored.weights
    expected = np.bincount(codes, weights * scored.probabilities[task], len(texts))[judged]
    clicks = np.bincount(codes, weights * scored.labels[task], len(texts))[judged]
    found = np.divide(expected, clicks, out=np.full(len(judged), np.inf), where=clicks > 0)
    worst = int(np.argmax(np.abs(found - 1)))
    where = f"where {column} is {texts[judged[worst]]} ({counts[judged[worst]]:,} rows)"
    if not clicks[worst]:
        return gate_row("calibration", "slice", bound, None, False, f"no click {where}, {expected[worst]:.1f} expected")
    passed = abs(found[worst] - 1) <= bounds.max_error
    return gate_row("calibration", "slice", bound, float(found[worst]), passed, f"{found[worst]:.4f} at worst, {where}")


def _quantile(confidence: float) -> float:
    return statistics.NormalDist().inv_cdf(confidence)


def _is(passed: bool) -> str:
    return "is" if passed else "is not"


def gate_row(metric: str, kind: str, bound: str, value: float | None, passed: bool, reason: str = "") -> dict[str, Any]:
    """Returns a row of the gate table. Without a reason, the text compares the value with the bound.

    A value that is not a finite number never passes, and is written as None.
    """
    if value is not None and not math.isfinite(value):
        value, passed, reason = None, False, UNDEFINED[kind]
    if not reason:
        reason = f"{value:.4f} {_is(passed)} {bound}"
    return {"metric": metric, "kind": kind, "bound": bound, "value": value, "passed": bool(passed), "reason": reason}


def _overall(result: tfma.EvalResult, suffix: str = "") -> dict[str, float]:
    """Returns TFMA's metrics over all rows.

    The suffix `_diff` selects the differences to the last blessed model.
    """
    values: dict[str, float] = {}
    for slice_key, by_output in result.slicing_metrics:
        if slice_key:
            continue
        for by_class in by_output.values():
            for metrics in by_class.values():
                for name in ESTIMATES:
                    value = metrics.get(name + suffix, {})
                    if "doubleValue" in value:
                        values[name] = float(value["doubleValue"])
    return values
