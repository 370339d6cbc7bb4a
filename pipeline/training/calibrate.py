"""Fits the calibration of a trained model on rows that its weights were not trained on.

References:
    Platt, "Probabilistic Outputs for Support Vector Machines", 1999; Zadrozny and Elkan, "Obtaining calibrated
    probability estimates from decision trees and naive Bayesian classifiers", 2001 (histogram), and "Transforming
    classifier scores into accurate multiclass probability estimates", 2002 (isotonic); Kull, Silva Filho and Flach,
    "Beta calibration: a well-founded and easily implemented improvement on logistic calibration for binary
    classifiers", 2017.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import scipy.special
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.common.finite import check_predictions
from ctrpipe.common.metrics import EPSILON, log_loss
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.config import Calibration
from ctrpipe.pipeline.training.data import base_rates, packed_batches, prediction_rows, weights_of
from ctrpipe.pipeline.training.learner import Batch
from ctrpipe.serving.calibration import (
    UNCHANGED,
    Beta,
    CalibrationChoice,
    Curve,
    FittedCalibration,
    Line,
    Overall,
    SliceLines,
    TaskCalibration,
    Uncorrected,
    slice_rows,
)
from ctrpipe.transforms.log.payload import read_payload
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.spec import LogSpec

# Precision of the prior on the line of all rows: negligible, but it keeps the fit finite if the logit separates the
# classes.
NO_SHRINKAGE = 1e-6
FOLDS = 5  # of the validation rows, to choose a calibration
LEAST_CLASS = 2 * FOLDS  # least rows with a click, and rows without one, to evaluate a calibration
NONE = "none"  # the candidate that does not change the model's probabilities
# The methods to choose from by the configuration's method, the simplest first.
CANDIDATES: dict[str, tuple[str, ...]] = {
    "platt": ("platt",),
    "beta": ("platt", "beta"),
    "isotonic": ("platt", "beta", "isotonic"),
    "histogram": ("platt", "beta", "histogram"),
}
LEAST_STRETCH = 0.05  # lower bound of a row's stretch: its log-odds must increase with the logit

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class CalibrationRows:
    """Rows for the calibration of one task.

    Attributes:
        logits, labels, weights: Values per row, `[N]`; weights are positive.
        others_scale: The factor in the weights of the rows without a click, if they were sampled.
    """

    logits: Floats
    labels: Floats
    weights: Floats
    others_scale: float = 1.0

    def at(self, chosen: npt.NDArray[np.bool_]) -> "CalibrationRows":
        """Returns the rows where `chosen`, `[N]`, is true."""
        return CalibrationRows(self.logits[chosen], self.labels[chosen], self.weights[chosen], self.others_scale)

    def classes(self) -> tuple[int, int]:
        """Returns the numbers of rows with a click and of rows without one."""
        return int((self.labels > 0).sum()), int((self.labels < 1).sum())


def check_classes(feature_map: FeatureMap, files: list[str]) -> None:
    """Raises InputError if all validation labels of a task are equal. Call it before training."""
    for (task, number), rate in zip(feature_map.numbers_by_task.items(), base_rates(files), strict=True):
        if number is None and rate in (0.0, 1.0):
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
    of_rows = weights_of(validation_files)
    if of_rows is not None:
        weights *= of_rows[:, None]
    scale = 1.0
    if negatives is not None:
        scale = negatives / float(weights[labels < 0.5].sum())
        weights[labels < 0.5] *= scale
    tasks = {}
    for index, (task, number) in enumerate(feature_map.numbers_by_task.items()):
        if number is not None:
            tasks[task] = TaskCalibration(Uncorrected(number))
            continue
        counted = (weights[:, index] > 0) & ~np.isnan(labels[:, index])
        own = (logits[counted, index], labels[counted, index], weights[counted, index])
        rows = CalibrationRows(*own, others_scale=scale)
        tasks[task] = fit_task(settings, rows, feature_map, ids[counted])
    return FittedCalibration(settings.method, tasks)


def fit_task(
    settings: Calibration, rows: CalibrationRows, feature_map: FeatureMap, ids: npt.NDArray[np.int32]
) -> TaskCalibration:
    """Fits the calibration that has the lowest log loss on held-out rows: none, `settings.method` or a simpler one.

    A calibration that was fitted to few clicks follows their noise, and can be further from the truth than the model.
    The loss on the rows of the fit does not show this, so each candidate is compared by cross-validation with FOLDS
    folds.

    Args:
        settings: The method and its slices.
        rows: The rows of a task.
        feature_map: The description of the packed tensors.
        ids: The ids of the columns `settings.by`, `[N, columns]`.
    """
    clicks, others = rows.classes()
    if min(clicks, others) < LEAST_CLASS:
        few = f"{clicks:,} validation rows with a click" if clicks < others else f"{others:,} without a click"
        reason = f"{few} are too few to hold some out, {LEAST_CLASS} are needed"
        return TaskCalibration(UNCHANGED, None, CalibrationChoice(NONE, False if settings.by else None, {}, reason))
    folds = fold_numbers(rows)
    losses = {method: held_out_loss(settings, method, rows, folds) for method in (NONE, *CANDIDATES[settings.method])}
    taken = min(losses, key=lambda method: losses[method])  # the simpler one of equal candidates
    overall = fit_overall(settings, taken, rows)
    slices, by = None, None
    if settings.by:
        with_slices = f"{taken} by {', '.join(settings.by)}"
        losses[with_slices] = held_out_loss(settings, taken, rows, folds, feature_map, ids)
        by = losses[with_slices] < losses[taken]
        slices = fit_slices(settings, rows, overall, feature_map, ids) if by else None
    return TaskCalibration(overall, slices, CalibrationChoice(taken, by, losses, _reason(settings, taken, by)))


def _reason(settings: Calibration, taken: str, by: bool | None) -> str:
    """Returns a sentence about the choice."""
    if taken == NONE:
        text = "no method lowers the log loss on held-out rows"
    elif taken != settings.method:
        text = f"it lowers the log loss on held-out rows, more than {settings.method}"
    else:
        text = "it lowers the log loss on held-out rows"
    if by is None:
        return text
    listed = ", ".join(settings.by)
    return f"{text}; a correction by {listed} {'lowers it' if by else 'does not lower it, and is left out'}"


def fold_numbers(rows: CalibrationRows) -> npt.NDArray[np.int64]:
    """Returns a random fold for each row, `[N]`, with equal shares of the clicks in each fold.

    The folds depend only on the labels, so a repeated run has the same folds.
    """
    shuffled = np.random.default_rng(0).permutation(len(rows.labels))
    by_label = shuffled[np.argsort(rows.labels[shuffled], kind="stable")]
    folds = np.empty(len(by_label), np.int64)
    folds[by_label] = np.arange(len(by_label)) % FOLDS
    return folds


def held_out_loss(
    settings: Calibration,
    method: str,
    rows: CalibrationRows,
    folds: npt.NDArray[np.int64],
    feature_map: FeatureMap | None = None,
    ids: npt.NDArray[np.int32] | None = None,
) -> float:
    """Returns the cross-validated mean log loss of a method, in nats: each row is predicted by a fit without its fold.

    Args:
        settings: The settings of the methods.
        method: The name of a method, or NONE.
        rows: The rows of a task.
        folds: The fold of each row, `[N]`.
        feature_map, ids: As in `fit_task`, for a correction by the values of columns; None for none.
    """
    predicted = np.empty(len(rows.labels))
    for fold in range(FOLDS):
        own = folds == fold
        kept = rows.at(~own)
        overall = fit_overall(settings, method, kept)
        slices, slots = None, None
        if feature_map is not None and ids is not None:
            slices = fit_slices(settings, kept, overall, feature_map, ids[~own])
            slots = np.zeros((int(own.sum()), feature_map.total_slots), np.int32)
            slots[:, slices.slots] = ids[own]
        calibrated = TaskCalibration(overall, slices).probabilities(tf.constant(rows.logits[own], tf.float32), slots)
        predicted[own] = calibrated.numpy()
    loss = log_loss(rows.labels, predicted, rows.weights)
    assert loss is not None  # rows have positive weights
    return loss


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


def fit_overall(settings: Calibration, method: str, rows: CalibrationRows) -> Overall:
    """Fits the calibration of all rows with a method of CANDIDATES, or returns UNCHANGED for NONE."""
    match method:
        case "platt":
            return fit_line(rows)
        case "beta":
            return fit_beta(rows)
        case "isotonic":
            return fit_isotonic(rows, settings.clicks_per_step)
        case "histogram":
            return fit_histogram(rows, settings.bins, settings.clicks_per_step)
    return UNCHANGED


def fit_line(rows: CalibrationRows) -> Line:
    """Fits a logistic regression of the labels on the logit, with a slope of at least 0."""
    [slope], intercept = _fit_logistic(rows, rows.logits[:, None])
    return Line(slope, intercept)


def fit_beta(rows: CalibrationRows) -> Beta:
    """Fits a logistic regression of the labels on ln p and -ln(1 - p), with coefficients of at least 0."""
    features = np.stack([-np.logaddexp(0, -rows.logits), np.logaddexp(0, rows.logits)], axis=1)
    [rise, fall], intercept = _fit_logistic(rows, features)
    return Beta(rise, fall, intercept)


def _fit_logistic(rows: CalibrationRows, features: Floats) -> tuple[list[float], float]:
    """Returns the coefficients, at least 0, and the intercept of a logistic regression on features, `[N, features]`.

    A feature whose coefficient would be negative is left out, as Kull et al. do.
    """
    mean = np.average(features, axis=0, weights=rows.weights)
    scale = np.sqrt(np.average((features - mean) ** 2, axis=0, weights=rows.weights))
    scale[scale < 1e-9] = 1.0  # one logit: its rounding errors are no deviation
    scaled = np.append((features - mean) / scale, np.ones((len(features), 1)), axis=1)
    used = np.ones(len(mean) + 1, bool)
    while (solution := _newton(rows, scaled[:, used]))[:-1].min(initial=0) < 0:
        used[np.flatnonzero(used)[np.argmin(solution[:-1])]] = False
    coefficients = np.zeros(len(mean))
    coefficients[used[:-1]] = solution[:-1]
    coefficients /= scale
    return coefficients.tolist(), float(solution[-1] - coefficients @ mean)


def _newton(rows: CalibrationRows, columns: Floats) -> Floats:
    """Returns the coefficients of a logistic regression on columns, `[N, columns]`."""
    from scipy.optimize import minimize  # lazy: takes 0.2 s, and only a calibration needs it

    total = rows.weights.sum()

    def loss(flat: Floats) -> tuple[float, Floats]:
        log_odds = columns @ flat
        error = rows.weights * (scipy.special.expit(log_odds) - rows.labels)
        value = rows.weights @ (np.logaddexp(0, log_odds) - rows.labels * log_odds) + NO_SHRINKAGE / 2 * flat @ flat
        return value / total, (columns.T @ error + NO_SHRINKAGE * flat) / total

    def curvature(flat: Floats) -> Floats:
        rates = scipy.special.expit(columns @ flat)
        information: Floats = (columns * (rows.weights * rates * (1 - rates))[:, None]).T @ columns
        hessian: Floats = (information + NO_SHRINKAGE * np.eye(len(flat))) / total
        return hessian

    start = np.zeros(columns.shape[1])
    # Newton's method: ln p and ln(1 - p) are almost one column where clicks are rare, and take L-BFGS 100 steps.
    options = {"gtol": 1e-9, "initial_trust_radius": 4.0, "max_trust_radius": 100.0}
    coefficients: Floats = minimize(loss, start, jac=True, hess=curvature, method="trust-exact", options=options).x
    return coefficients


def fit_isotonic(rows: CalibrationRows, clicks_per_step: int) -> Curve:
    """Fits the isotonic regression, linear between the ends of its steps, and joins steps of little evidence.

    Each step has at least `clicks_per_step` clicks and as many rows without one, except for a single step of all rows.
    Rates stay at least 1 / (total weight + 2) away from 0 and 1.
    """
    steps, least = _steps(rows), _least_rate(rows)
    from scipy.optimize import isotonic_regression  # lazy, see _newton

    fitted = isotonic_regression(steps.clicks / steps.weights, weights=steps.weights)
    firsts = steps.joined(fitted.blocks[:-1], clicks_per_step)
    lasts = np.append(firsts[1:], len(steps.points)) - 1
    ends = np.stack([firsts, lasts], axis=1).ravel()
    known = np.append(True, np.diff(ends) > 0)  # a step of one logit has one end
    points = steps.points[ends][known]
    rates = np.repeat(np.clip(steps.rates(firsts), least, 1 - least), 2)[known].astype(np.float32)
    slopes = np.diff(rates) / np.diff(points)
    inner = np.stack([points[:-1], rates[:-1], slopes], axis=1)
    edges = [[points[end], rates[end], 0.0] for end in (0, -1)]
    return Curve(points, np.concatenate([edges[:1], inner, edges[1:]]).astype(np.float32))


def fit_histogram(rows: CalibrationRows, bins: int, clicks_per_bin: int) -> Curve:
    """Fits the share of clicks in bins of equal weight. Neighbouring bins with falling shares are joined.

    Rows with equal logits are in the same bin. Each bin has at least `clicks_per_bin` clicks and as many rows without
    one, except for a single bin of all rows.
    """
    steps, least = _steps(rows), _least_rate(rows)
    middles = np.cumsum(steps.weights) - steps.weights / 2
    bin_of_point = np.minimum((middles * bins / steps.weights.sum()).astype(np.int64), bins - 1)
    starts = steps.joined(np.flatnonzero(np.append(True, np.diff(bin_of_point) > 0)), clicks_per_bin)
    from scipy.optimize import isotonic_regression  # lazy, see _newton

    of_bins = np.add.reduceat(steps.weights, starts)
    rates = np.clip(isotonic_regression(steps.rates(starts), weights=of_bins).x, least, 1 - least)
    pieces = np.stack([steps.points[starts], rates, np.zeros(len(rates))], axis=1)
    return Curve(steps.points[starts[1:]], pieces.astype(np.float32))


@dataclasses.dataclass(frozen=True)
class _Steps:
    """Rows grouped by logit, in ascending order.

    Attributes:
        points: The distinct logits, ascending, `[P]`.
        clicks, weights: The weight of the clicks and of all rows at each, `[P]`.
        others_scale: As in CalibrationRows.
    """

    points: npt.NDArray[np.float32]
    clicks: Floats
    weights: Floats
    others_scale: float

    def joined(self, firsts: npt.NDArray[np.int64], least: float) -> npt.NDArray[np.int64]:
        """Returns the first indices of steps that each have at least `least` clicks and `least` rows without a click.

        A step with fewer is joined with the next step; the remainder at the end joins the last step.
        """
        clicks, weights = np.add.reduceat(self.clicks, firsts), np.add.reduceat(self.weights, firsts)
        others = (weights - clicks) / self.others_scale
        kept = [firsts[0]]
        seen = np.zeros(2)
        for index in range(len(firsts)):
            seen += clicks[index], others[index]
            if seen.min() >= least and index + 1 < len(firsts):
                kept.append(firsts[index + 1])
                seen[:] = 0
        if len(kept) > 1 and seen.min() < least:
            kept.pop()
        return np.array(kept)

    def rates(self, firsts: npt.NDArray[np.int64]) -> Floats:
        """Returns the click rate of each step."""
        rates: Floats = np.add.reduceat(self.clicks, firsts) / np.add.reduceat(self.weights, firsts)
        return rates


def _steps(rows: CalibrationRows) -> _Steps:
    points, places = np.unique(rows.logits.astype(np.float32), return_inverse=True)
    clicks = np.bincount(places, rows.weights * rows.labels).astype(np.float64)
    weights = np.bincount(places, rows.weights).astype(np.float64)
    return _Steps(points, clicks, weights, rows.others_scale)


def _least_rate(rows: CalibrationRows) -> float:
    return max(1 / (float(rows.weights.sum()) + 2), EPSILON)


def fit_slices(
    settings: Calibration,
    rows: CalibrationRows,
    overall: Overall,
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
    from scipy.optimize import minimize  # lazy, see _newton

    options = {"maxiter": 500, "maxfun": 1000, "ftol": 1e-15, "gtol": 1e-9}
    start = np.zeros(2 * len(used))
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    lines = np.zeros((groups, 2))
    lines[used] = optimum.x.reshape(2, -1).T
    return lines
