"""Metrics on the test rows with their sampling errors, as the contribution of each row.

A label of NaN is unknown, and its row is left out. Estimates on the same labels therefore use the same rows.

References:
    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
    characteristic curves", 1988: the covariance of AUCs on the same rows.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from ctrpipe.common import metrics
from ctrpipe.common.grouped_auc import NO_GROUP, group_aucs
from ctrpipe.common.metrics import Weights


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A metric of one trained model on the test rows.

    Attributes:
        value: The metric.
        components: The contribution of each row to the error, `[rows]`, or of each group. The covariance of two
            estimates on the same rows is the dot product of their components.
    """

    value: float
    components: np.ndarray

    @property
    def standard_error(self) -> float:
        """The standard error of the metric over samples of test rows."""
        return float(np.sqrt(self.components @ self.components))

    def minus(self, other: "Estimate") -> "Estimate":
        """Returns the difference to another estimate on the same rows."""
        return Estimate(self.value - other.value, self.components - other.components)


def auc_estimate(labels: np.ndarray, probabilities: np.ndarray, weights: Weights = None) -> Estimate | None:
    """Returns the area under the ROC curve with DeLong's components, in O(N log N).

    `metrics.auc` has the same value; the components need each row's share of it. Returns None with fewer than two rows
    of a class.

    Args:
        labels: 0 or 1, or rates between, `[N]`.
        probabilities: Predictions, `[N]`.
        weights: Row weights, `[N]`; None for 1. For the error, a row counts as one row whatever its weight.

    References:
        Sun and Xu, "Fast Implementation of DeLong's Algorithm", 2014.
    """
    labels, probabilities, weights = metrics.labelled(labels, probabilities, weights)
    clicked, others = metrics.class_weights(labels, weights)
    if min(np.count_nonzero(clicked), np.count_nonzero(others)) < 2:
        return None
    # For each row, the share of the other class's rows that it is ranked correctly against.
    _, places = np.unique(probabilities, return_inverse=True)
    clicks_at, others_at = np.bincount(places, clicked), np.bincount(places, others)
    others_below = (np.cumsum(others_at) - others_at / 2) / others_at.sum()
    clicks_above = 1 - (np.cumsum(clicks_at) - clicks_at / 2) / clicks_at.sum()
    value = float(clicked @ others_below[places] / clicks_at.sum())
    sides = ((clicked, others_below[places]), (others, clicks_above[places]))
    return Estimate(value, sum((_shares(mass) * (right - value) for mass, right in sides), np.zeros(len(labels))))


def gauc_estimate(
    groups: np.ndarray, labels: np.ndarray, probabilities: np.ndarray, weights: Weights = None, by: str = "impressions"
) -> Estimate | None:
    """Returns gAUC, the weighted mean AUC of the groups, with one component per group of both classes.

    The error is over samples of groups, not of rows. Returns None with fewer than two groups of both classes.

    Args:
        groups: The group number of each row, int64 `[N]`; NO_GROUP for none.
        labels, probabilities, weights: See `auc_estimate`.
        by: The weight of a group, one of WEIGHTINGS.
    """
    own = groups != NO_GROUP
    of_rows = None if weights is None else weights[own]
    grouped = group_aucs(groups[own], labels[own], probabilities[own], of_rows, by)
    if grouped.value is None or len(grouped.aucs) < 2:
        return None
    return Estimate(grouped.value, grouped.components)


def _shares(weights: np.ndarray) -> np.ndarray:
    """Returns factors from a row's deviation to its part in a mean's error, `[N]`.

    With equal weights they are 1 / sqrt(N (N - 1)).
    """
    rows = np.count_nonzero(weights)
    shares: np.ndarray = weights / weights.sum() * math.sqrt(rows / (rows - 1))
    return shares


def rig_estimate(labels: np.ndarray, probabilities: np.ndarray, weights: Weights = None) -> Estimate | None:
    """Returns the relative information gain, 1 - log loss / entropy of the base rate, with linearised components.

    Returns None with fewer than two rows or with one class only. See `auc_estimate` for the arguments.
    """
    labels, probabilities, weights = metrics.labelled(labels, probabilities, weights)
    mass = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    value, rate = metrics.rig(labels, probabilities, weights), metrics.mean(labels, weights)
    if value is None or rate is None or np.count_nonzero(mass) < 2:
        return None
    clicks = np.asarray(labels, np.float64)
    entropy = metrics.entropy(rate)
    losses = metrics.log_losses(labels, probabilities)
    loss = float(mass @ losses / mass.sum())
    slope = math.log((1 - rate) / rate)  # derivative of the entropy with respect to the base rate
    of_rows = (loss - losses) / entropy + loss / entropy**2 * slope * (clicks - rate)
    return Estimate(value, _shares(mass) * of_rows)


def log_loss_estimate(labels: np.ndarray, probabilities: np.ndarray, weights: Weights = None) -> Estimate | None:
    """Returns the mean log loss, in nats per row; None with fewer than two rows.

    See `auc_estimate` for the arguments.
    """
    labels, probabilities, weights = metrics.labelled(labels, probabilities, weights)
    mass = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    if np.count_nonzero(mass) < 2:
        return None
    losses = metrics.log_losses(labels, probabilities)
    value = float(mass @ losses / mass.sum())
    return Estimate(value, _shares(mass) * (losses - value))


def auc_minus_log_loss_estimate(
    labels: np.ndarray, probabilities: np.ndarray, weights: Weights = None
) -> Estimate | None:
    """Returns the AUC minus the mean log loss; None with fewer than two rows of a class.

    See `auc_estimate` for the arguments.
    """
    of_auc = auc_estimate(labels, probabilities, weights)
    of_loss = log_loss_estimate(labels, probabilities, weights)
    return None if of_auc is None or of_loss is None else of_auc.minus(of_loss)


def rmse_estimate(labels: np.ndarray, numbers: np.ndarray, weights: Weights = None) -> Estimate | None:
    """Returns the square root of the mean squared difference of predicted numbers, with linearised components.

    Returns None with fewer than two rows.

    Args:
        labels: The true numbers, `[N]`.
        numbers: The predicted ones, `[N]`.
        weights: See `auc_estimate`.
    """
    squares = _mean_estimate(lambda apart: apart**2, labels, numbers, weights)
    if squares is None:
        return None
    value = math.sqrt(squares.value)
    return Estimate(value, squares.components / (2 * value) if value else squares.components)


def mae_estimate(labels: np.ndarray, numbers: np.ndarray, weights: Weights = None) -> Estimate | None:
    """Returns the mean absolute difference of predicted numbers; None with fewer than two rows.

    See `rmse_estimate` for the arguments.
    """
    return _mean_estimate(np.abs, labels, numbers, weights)


def _mean_estimate(
    loss: Callable[[np.ndarray], np.ndarray], labels: np.ndarray, numbers: np.ndarray, weights: Weights
) -> Estimate | None:
    """Returns the mean of a loss of the differences between predicted and true numbers."""
    labels, numbers, weights = metrics.labelled(labels, numbers, weights)
    mass = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    if np.count_nonzero(mass) < 2:
        return None
    losses = loss(np.asarray(numbers, np.float64) - labels)
    value = float(mass @ losses / mass.sum())
    return Estimate(value, _shares(mass) * (losses - value))


def calibration_estimate(labels: np.ndarray, probabilities: np.ndarray, weights: Weights = None) -> Estimate | None:
    """Returns the mean prediction divided by the observed click rate, with linearised components.

    Returns None without clicks or with fewer than two rows. See `auc_estimate` for the arguments.
    """
    labels, probabilities, weights = metrics.labelled(labels, probabilities, weights)
    mass = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
    value, rate = metrics.calibration(labels, probabilities, weights), metrics.mean(labels, weights)
    if value is None or not rate or np.count_nonzero(mass) < 2:
        return None
    of_rows = (np.asarray(probabilities, np.float64) - value * np.asarray(labels, np.float64)) / rate
    return Estimate(value, _shares(mass) * of_rows)
