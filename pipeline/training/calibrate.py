"""Fits the calibration of a trained model on rows that its weights were not trained on.

References:
    Platt, "Probabilistic Outputs for Support Vector Machines", 1999; Zadrozny and Elkan, "Obtaining calibrated
    probability estimates from decision trees and naive Bayesian classifiers", 2001 (histogram), and "Transforming
    classifier scores into accurate multiclass probability estimates", 2002 (isotonic).
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.special
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.metrics import EPSILON
from ctrpipe.pipeline.config import Calibration
from ctrpipe.pipeline.training.data import base_rates, packed_batches, prediction_rows, weights_of
from ctrpipe.pipeline.training.finite import check_predictions
from ctrpipe.pipeline.training.learner import Batch
from ctrpipe.serving.calibration import Curve, FittedCalibration, Line, SliceLines, TaskCalibration, slice_rows
from ctrpipe.transforms.log.payload import read_payload
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.spec import LogSpec

# Precision of the prior on the line of all rows: negligible, but it keeps the fit finite if the logit separates the
# classes.
NO_SHRINKAGE = 1e-6
LEAST_STRETCH = 0.05  # lower bound of a row's stretch: its log-odds must increase with the logit

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class CalibrationRows:
    """Rows for the calibration of one task.

    Attributes:
        logits, labels, weights: Values per row, `[N]`; weights are positive.
    """

    logits: Floats
    labels: Floats
    weights: Floats


def check_classes(feature_map: FeatureMap, files: list[str]) -> None:
    """Raises InputError if all validation labels of a task are equal. Call it before training."""
    for task, rate in zip(feature_map.tasks, base_rates(files), strict=True):
        if rate in (0.0, 1.0):
            raise InputError(
                f"calibration: the labels of {task} are all {rate:g} in the validation rows; give them more rows in "
                "data.split, or remove calibration"
            )


def weight_of_negatives(spec: LogSpec, payload: Sequence[pathlib.Path]) -> float:
    """Returns the total weight of the payload rows that are negatives of the first task."""
    total = 0.0
    for rows in read_payload(payload, spec.target_columns):
        others = 1.0 - number_array(rows[spec.label_columns[0]])
        total += float(others @ number_array(rows[spec.data.weight])) if spec.data.weight else float(others.sum())
    return total


def fit_calibration(
    settings: Calibration,
    feature_map: FeatureMap,
    validation_files: list[str],
    negatives: float | None,
    model: CTRModel,
) -> FittedCalibration:
    """Fits the calibration of a model's logits to the validation rows, which count by their weights.

    Args:
        settings: The method and its slices.
        feature_map: The description of the packed tensors.
        validation_files: Globs of packed files with rows of both classes.
        negatives: The total weight of all negatives, if only a share of them was packed; None if all were packed. The
            packed negatives are scaled to it, so the rates are exactly those of all rows, without sampling error.
        model: The model as served.
    """
    batches = packed_batches(validation_files, feature_map, prediction_rows(feature_map))
    logits, labels, ids = _predicted(model, batches, feature_map, settings.by)
    weights = np.ones(labels.shape)
    own = weights_of(validation_files)
    if own is not None:
        weights *= own[:, None]
    if negatives is not None:
        weights[labels < 0.5] *= negatives / weights[labels < 0.5].sum()
    tasks = {}
    for index, task in enumerate(feature_map.tasks):
        counted = weights[:, index] > 0
        rows = CalibrationRows(*(values[counted, index] for values in (logits, labels, weights)))
        overall = fit_overall(settings, rows)
        slices = fit_slices(settings, rows, overall, feature_map, ids[counted]) if settings.by else None
        tasks[task] = TaskCalibration(overall, slices)
    return FittedCalibration(settings.method, tasks)


def _predicted(
    model: CTRModel, batches: Iterable[Batch], feature_map: FeatureMap, by: list[str]
) -> tuple[Floats, Floats, npt.NDArray[np.int32]]:
    """Returns logits and labels, `[N, tasks]` each, and the ids of the columns `by`, `[N, columns]`."""
    forward = tf.function(lambda inputs: model(inputs, training=False), autograph=False, reduce_retracing=True)
    slots = slice_rows(feature_map, by)["slots"]
    parts = [
        (forward(inputs), label, inputs["ids"][:, slots] if by else np.zeros((len(label), 0), np.int32))
        for inputs, label in batches
    ]
    logits, labels, ids = (np.concatenate([np.asarray(part[index]) for part in parts]) for index in range(3))
    check_predictions("calibration", logits, "validation", in_order=feature_map.negative_sampling == 1)
    return logits.astype(np.float64), labels.astype(np.float64), ids


def fit_overall(settings: Calibration, rows: CalibrationRows) -> Line | Curve:
    """Fits the calibration of all rows with the method of `settings`."""
    if settings.method == "platt":
        return fit_line(rows)
    return fit_isotonic(rows) if settings.method == "isotonic" else fit_histogram(rows, settings.bins)


def fit_line(rows: CalibrationRows) -> Line:
    """Fits a logistic regression of the labels on the logit, with a slope of at least 0."""
    mean = np.average(rows.logits, weights=rows.weights)
    scale = np.sqrt(np.average((rows.logits - mean) ** 2, weights=rows.weights)) or 1.0
    nothing = np.zeros(len(rows.logits))
    one_group = np.zeros((len(rows.logits), 1), np.int64)
    [[slope, shift]] = _fit_lines(rows, nothing, (rows.logits - mean) / scale, one_group, 1, NO_SHRINKAGE, 0.0)
    return Line(float(slope / scale), float(shift - slope / scale * mean))


def fit_isotonic(rows: CalibrationRows) -> Curve:
    """Fits scikit-learn's isotonic regression, which is linear between the ends of its steps.

    Rates stay at least 1 / (total weight + 2) away from 0 and 1: if no row of a step was clicked, the next one may be.
    """
    from sklearn.isotonic import IsotonicRegression  # takes a second to import

    least = _least_rate(rows)
    fitted = IsotonicRegression(y_min=least, y_max=1 - least, out_of_bounds="clip")
    fitted.fit(rows.logits, rows.labels, rows.weights)
    points, rates = fitted.X_thresholds_.astype(np.float32), fitted.y_thresholds_.astype(np.float32)
    slopes = np.diff(rates) / np.diff(points)
    inner = np.stack([points[:-1], rates[:-1], slopes], axis=1)
    ends = [[points[end], rates[end], 0.0] for end in (0, -1)]
    return Curve(points, np.concatenate([ends[:1], inner, ends[1:]]).astype(np.float32))


def fit_histogram(rows: CalibrationRows, bins: int) -> Curve:
    """Fits the share of clicks in bins of equal weight. Neighbouring bins with falling shares are joined.

    Rows with equal logits are in the same bin.
    """
    points, places = np.unique(rows.logits.astype(np.float32), return_inverse=True)
    weights = np.bincount(places, rows.weights)
    middles = np.cumsum(weights) - weights / 2
    bin_of_point = np.minimum((middles * bins / weights.sum()).astype(np.int64), bins - 1)
    starts = np.append(True, np.diff(bin_of_point) > 0)
    bin_of_row = (np.cumsum(starts) - 1)[places]
    of_bins = np.bincount(bin_of_row, rows.weights)
    rates = np.bincount(bin_of_row, rows.weights * rows.labels) / of_bins
    from scipy.optimize import isotonic_regression  # see _fit_lines

    rising = isotonic_regression(rates, weights=of_bins).x
    least = _least_rate(rows)
    rates = np.clip(rising, least, 1 - least)
    edges = points[starts][1:]
    firsts = np.append(points[0], edges)
    pieces = np.stack([firsts, rates, np.zeros(len(rates))], axis=1)
    return Curve(edges, pieces.astype(np.float32))


def _least_rate(rows: CalibrationRows) -> float:
    return max(1 / (float(rows.weights.sum()) + 2), EPSILON)


def fit_slices(
    settings: Calibration,
    rows: CalibrationRows,
    overall: Line | Curve,
    feature_map: FeatureMap,
    ids: npt.NDArray[np.int32],
) -> SliceLines:
    """Fits a line per value of `settings.by`: a logistic regression with a normal prior around no change.

    Args:
        settings: The columns and the prior's precision `shrinkage`, in units of the information on log-odds: n rows
            with click rate p have n p (1 - p).
        rows: The rows of a task.
        overall: The task's calibration of all rows.
        feature_map: The description of the packed tensors.
        ids: The columns' ids, `[N, columns]`.
    """
    places = slice_rows(feature_map, settings.by)
    log_odds = overall.log_odds(tf.constant(rows.logits, tf.float32)).numpy().astype(np.float64)
    mean = np.average(log_odds, weights=rows.weights)
    codes = ids.astype(np.int64) - places["first"] + places["rows"]
    least = (LEAST_STRETCH - 1) / len(settings.by)
    count = int(places["last"][-1]) + 1
    stretch, shift = _fit_lines(rows, log_odds, log_odds - mean, codes, count, settings.shrinkage, least).T
    lines = np.stack([stretch, shift - stretch * mean], axis=1)
    lines[: places["last"][0] + 1, 0] += 1
    return SliceLines(**places, lines=lines.astype(np.float32))


def _fit_lines(
    rows: CalibrationRows,
    offset: Floats,
    centred: Floats,
    codes: npt.NDArray[np.int64],
    groups: int,
    shrinkage: float,
    least_slope: float,
) -> Floats:
    """Returns the slope and the shift of each group, `[groups, 2]`, that minimise the penalised log loss.

    The log-odds of a row are `offset + sum over its groups of (slope * centred + shift)`.

    Args:
        rows: The labels and weights.
        offset, centred: Values per row, `[N]`.
        codes: The groups of each row, `[N, columns]`.
        groups: The number of groups.
        shrinkage: The penalty is `shrinkage / 2` times the sum of the squared slopes and shifts.
        least_slope: Lower bound of a group's slope.
    """
    from scipy.optimize import minimize  # takes 0.2 s of CPU time, so it is imported only if there is a calibration

    total = rows.weights.sum()
    used, place = np.unique(codes, return_inverse=True)
    place = place.reshape(codes.shape)

    def loss(flat: Floats) -> tuple[float, Floats]:
        slope, shift = flat.reshape(2, -1)
        log_odds = offset + slope[place].sum(axis=1) * centred + shift[place].sum(axis=1)
        losses = np.logaddexp(0, log_odds) - rows.labels * log_odds
        error = rows.weights * (scipy.special.expit(log_odds) - rows.labels)
        gradient = shrinkage * flat
        for column in place.T:
            gradient[: len(used)] += np.bincount(column, error * centred, len(used))
            gradient[len(used) :] += np.bincount(column, error, len(used))
        value = rows.weights @ losses + shrinkage / 2 * flat @ flat
        return value / total, gradient / total

    bounds = [(least_slope, None)] * len(used) + [(None, None)] * len(used)
    options = {"maxiter": 500, "maxfun": 1000, "ftol": 1e-15, "gtol": 1e-9}
    start = np.zeros(2 * len(used))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    lines = np.zeros((groups, 2))
    lines[used] = found.x.reshape(2, -1).T
    return lines
