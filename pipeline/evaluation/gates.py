"""Builds TFMA's configuration for the gates, and the table of gates that a model passed or failed."""

import math
import operator
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
import tensorflow_model_analysis as tfma
from tensorflow_model_analysis.proto import config_pb2

from ctrpipe.common.estimates import (
    Estimate,
    auc_estimate,
    auc_minus_log_loss_estimate,
    calibration_estimate,
    gauc_estimate,
    log_loss_estimate,
    rig_estimate,
)
from ctrpipe.common.significance import holm, quantile
from ctrpipe.pipeline.config import Bounds, CalibrationBounds, Evaluation, Gates, NumberBounds
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows
from ctrpipe.pipeline.evaluation.slice_calibration import SliceCalibrations, slice_calibrations
from ctrpipe.pipeline.evaluation.tail import TAIL
from ctrpipe.pipeline.evaluation.trainings import STATED, noisy_difference

ESTIMATES = {
    "auc": auc_estimate,
    "log_loss": log_loss_estimate,
    "auc_minus_log_loss": auc_minus_log_loss_estimate,
    "rig": rig_estimate,
    "calibration": calibration_estimate,
}
SLICE_LEVEL = 0.95  # of all values of all bounded columns together
# Why a value of each kind of gate may be no finite number, although all predictions of the model are.
UNDEFINED = {
    "absolute": "not defined on these test rows: all of them have the same label",
    "slice": "not a finite number",
    "change": "not a finite number: the last blessed model's predictions of these test rows are not",
}
NO_GROUPS = "not defined on these test rows: fewer than two groups have rows of both classes"


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
    drops = {} if gates.max_drop_confidence else gates.max_drop  # TFMA has no such test; see _change
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
    evaluation: pathlib.Path,
    gates: Gates,
    scored: ScoredRows,
    last_blessed: Sequence[np.ndarray],
    more_trainings: Sequence[np.ndarray] = (),
) -> list[dict[str, Any]]:
    """Returns one row per gate: metric, kind (absolute, slice or change), bound, value, passed, reason.

    Args:
        evaluation: The folder of TFMA's files.
        gates: The limits.
        scored: The model's predictions. The gates apply to the first task.
        last_blessed: The last blessed model's predictions of that task, and those of earlier training runs of its
            configuration, [N] each; empty for a first model.
        more_trainings: The predictions of the model's other training runs, [N] each.
    """
    result = tfma.load_eval_result(str(evaluation))
    values = _overall(result)
    rows = [row for number, bounds in gates.numbers.items() for row in number_gates(bounds, scored, number)]
    task = next(iter(scored.labels))
    known = scored.known(task)
    last_blessed, more_trainings = ([each[known] for each in side] for side in (last_blessed, more_trainings))
    scored = scored.labelled(task)
    labels, probabilities, weights = scored.labels[task], scored.probabilities[task], scored.weights
    absolute = {"auc": gates.auc, "log_loss": gates.log_loss, "auc_minus_log_loss": gates.auc_minus_log_loss}
    absolute |= {"rig": gates.rig, "calibration": gates.calibration}
    values["auc_minus_log_loss"] = values.get("auc", math.nan) - values.get("log_loss", math.nan)
    for metric, bounds in absolute.items():
        if bounds:
            estimate = ESTIMATES[metric](labels, probabilities, weights) if bounds.confidence else None
            rows += _absolute(metric, bounds, values.get(metric, math.nan), estimate)
    if gates.gauc:
        of_groups = _gauc(scored, task, probabilities)
        value = math.nan if of_groups is None else of_groups.value
        rows += _absolute("gauc", gates.gauc, value, of_groups, NO_GROUPS)
    if (limits := gates.calibration) and limits.slices:
        rows += slice_gates(limits, scored, task)
    changes = _overall(result, "_diff")
    for metric, drop in gates.max_drop.items():
        if not last_blessed:
            bound = f"at most {drop:g} worse than the last blessed model"
            rows.append(gate_row(metric, "change", bound, None, True, "no model has been blessed before"))
        elif gates.max_drop_confidence is None:
            bound = f"at most {drop:g} worse than the last blessed model"
            if metric == "gauc":
                ours, theirs = (_gauc(scored, task, each) for each in (probabilities, last_blessed[0]))
                if ours is None or theirs is None:
                    rows.append(gate_row(metric, "change", bound, None, False, NO_GROUPS))
                    continue
                worse = theirs.value - ours.value
            else:
                change = changes.get(metric, math.nan)
                worse = 0.0 - change if metric == "auc" else change
            rows.append(gate_row(metric, "change", bound, worse, worse <= drop))
        else:
            sides = [
                [
                    _gauc(scored, task, each) if metric == "gauc" else ESTIMATES[metric](labels, each, weights)
                    for each in trainings
                ]
                for trainings in ([probabilities, *more_trainings], last_blessed)
            ]
            rows.append(change_gate(metric, drop, gates, *sides))
    return rows


def number_gates(bounds: NumberBounds, scored: ScoredRows, task: str) -> list[dict[str, Any]]:
    """Returns a row for each limit of a task that predicts a number."""
    measured = scored.summary(task)
    named = {"rmse": bounds.rmse, "mae": bounds.mae, "r2": bounds.r2, "calibration": bounds.calibration}
    rows: list[dict[str, Any]] = []
    for metric, limits in named.items():
        value = measured[metric]
        if limits:
            rows += _absolute(f"{task} {metric}", limits, math.nan if value is None else float(value), None)
    return rows


def _gauc(scored: ScoredRows, task: str, probabilities: np.ndarray) -> Estimate | None:
    """Returns the gAUC of predictions of the scored rows; None with fewer than two groups of both classes."""
    assert scored.groups is not None
    return gauc_estimate(scored.groups, scored.labels[task], probabilities, scored.weights, scored.group_weight)


def _absolute(
    metric: str, bounds: Bounds, value: float, estimate: Estimate | None, undefined: str = UNDEFINED["absolute"]
) -> Iterator[dict[str, Any]]:
    """Yields the rows of a metric's lower and upper limit.

    If the bounds have a confidence level, `estimate` provides the standard error of the metric. `undefined` is the
    reason of a row if the metric has no value.
    """
    sides = (("at least", bounds.min, operator.ge, -1), ("at most", bounds.max, operator.le, 1))
    for name, limit, keeps, direction in sides:
        if limit is None:
            continue
        bound = f"{name} {limit:g}"
        if not math.isfinite(value):
            yield gate_row(metric, "absolute", bound, None, False, undefined)
        elif bounds.confidence is None:
            yield gate_row(metric, "absolute", bound, value, keeps(value, limit))
        elif estimate is None:
            yield gate_row(
                metric, "absolute", bound, value, False, f"{value:.4f} has no error on so few rows of a class"
            )
        else:
            worst = value + direction * quantile(bounds.confidence) * estimate.standard_error
            passed = keeps(worst, limit)
            said = f"{value:.4f}, at worst {worst:.4f} with {bounds.confidence:.0%} confidence, {_is(passed)} {bound}"
            yield gate_row(metric, "absolute", bound, value, passed, said)


def change_gate(
    metric: Literal["auc", "gauc", "log_loss"],
    drop: float,
    gates: Gates,
    ours: Sequence[Estimate | None],
    last: Sequence[Estimate | None],
) -> dict[str, Any]:
    """Returns the row of a change gate with a confidence level.

    The gate fails only if a test is confident that the metric is worse by more than the limit. The test includes the
    noise of rows and of training runs.

    Args:
        metric: auc, gauc or log_loss.
        drop: The limit.
        gates: The confidence level, and the noise of training runs where it is stated.
        ours: The model's estimates, one per training.
        last: The estimates of the last blessed model, and of earlier training runs of its configuration.
    """
    confidence = gates.max_drop_confidence
    assert confidence is not None
    bound = f"at most {drop:g} worse than the last blessed model beyond noise"
    known = [[each for each in side if each is not None] for side in (ours, last)]
    if [len(side) for side in known] != [len(ours), len(last)]:
        few = NO_GROUPS if metric == "gauc" else "the metric has no error on so few rows of a class"
        return gate_row(metric, "change", bound, None, True, few)
    if not all(math.isfinite(each.value) for side in known for each in side):
        return gate_row(metric, "change", bound, math.nan, False)
    usual = STATED[metric] * (abs(known[1][0].value) if metric == "log_loss" else 1.0)
    first, second = (known[0], known[1]) if metric != "log_loss" else (known[1], known[0])  # worse is above 0
    difference = noisy_difference(first, second, gates.training_noise.get(metric, usual))
    best = difference.at_least(confidence)
    passed = best <= drop
    noise = f"standard error {difference.standard_error:.4f} over rows and training runs, {difference.noise}"
    worse = f"{difference.value:.4f} worse, at least {best:.4f} with {confidence:.0%} confidence"
    reason = f"{worse} ({noise}), {_is(passed)} {bound}"
    return gate_row(metric, "change", bound, difference.value, passed, reason)


def slice_gates(bounds: CalibrationBounds, scored: ScoredRows, task: str) -> list[dict[str, Any]]:
    """Returns a row for each bounded column: the value whose calibration is most significantly out of bounds.

    A column fails if a value is out of bounds by more than chance explains. All values of all columns share one level.
    """
    labels, probabilities = scored.labels[task], scored.probabilities[task]
    calibrations = {
        column: slice_calibrations(
            scored.slices[column],
            labels,
            probabilities,
            scored.weights,
            bounds.min_clicks,
            scored.separators.get(column, ""),
        )
        for column in bounds.slices
    }
    assert bounds.max_error is not None  # the configuration sets both or none
    tests = {column: one.p_values(bounds.max_error) for column, one in calibrations.items()}
    alone = [tests[column] for column in bounds.slices]
    adjusted = np.split(holm(np.concatenate(alone)), np.cumsum([len(each) for each in alone])[:-1])
    judged = sum(len(each) for each in alone)
    return [
        _of_slices(column, bounds, calibrations[column], tests[column], p_values, judged)
        for column, p_values in zip(bounds.slices, adjusted, strict=True)
    ]


def _of_slices(
    column: str,
    bounds: CalibrationBounds,
    slices: SliceCalibrations,
    alone: np.ndarray,
    adjusted: np.ndarray,
    judged: int,
) -> dict[str, Any]:
    """Returns the row of one column.

    Args:
        column: The column.
        bounds: The limits.
        slices: The calibration of each judged value.
        alone: The p-value of each judged value.
        adjusted: The p-values corrected for the number of values.
        judged: The number of judged values of all columns.
    """
    bound = f"within {bounds.max_error:g} of 1 for each {column} of {bounds.min_clicks:,} clicks or more, beyond chance"
    if not slices.values:
        return gate_row("calibration", "slice", bound, None, True, f"no {column} has {bounds.min_clicks:,} clicks")
    ratios = slices.calibrations
    worst = int(np.lexsort((-np.abs(ratios - 1), alone))[0])
    passed = bool(adjusted[worst] >= 1 - SLICE_LEVEL)
    low, high = slices.interval(worst, 1 - (1 - SLICE_LEVEL) / judged)
    where = f"where {column} is {slices.values[worst]} ({slices.rows[worst]:,} rows, {slices.clicks[worst]:,} clicks)"
    many = "1 value" if judged == 1 else f"the largest of {judged:,} values"
    interval = f"{SLICE_LEVEL:.0%} interval {low:.4f} to {high:.4f}, of {many}"
    if not slices.observed[worst]:
        reason = f"no click {where}, {slices.expected[worst]:.1f} expected; {interval}"
        return gate_row("calibration", "slice", bound, None, passed, reason)
    value = float(ratios[worst])
    return gate_row("calibration", "slice", bound, value, passed, f"{value:.4f} at worst, {where}; {interval}")


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
