"""A metric on the test rows, and what each row adds to its error.

References:
    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
    characteristic curves", 1988: the covariance of AUCs on the same rows.
"""

import dataclasses
import math

import numpy as np

from models import metrics


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A metric of one training on the test rows.

    Attributes:
        value: The metric.
        components: What each row adds to its error, `[rows]`: the covariance of two estimates on the same rows is the
            scalar product of their components.
    """

    value: float
    components: np.ndarray

    @property
    def standard_error(self) -> float:
        """Its standard error over other rows."""
        return float(np.sqrt(self.components @ self.components))

    def minus(self, other: "Estimate") -> "Estimate":
        """Returns the difference to another estimate on the same rows."""
        return Estimate(self.value - other.value, self.components - other.components)


def auc_estimate(labels: np.ndarray, probabilities: np.ndarray) -> Estimate | None:
    """Returns the area under the ROC curve with DeLong's components, in O(N log N).

    Returns None with fewer than two rows of a class.

    Args:
        labels: 0 or 1, `[N]`.
        probabilities: Predictions, `[N]`.

    References:
        Sun and Xu, "Fast Implementation of DeLong's Algorithm", 2014.
    """
    clicked = labels > 0.5
    clicks, others = int(clicked.sum()), int((~clicked).sum())
    if min(clicks, others) < 2:
        return None
    # For each row, the share of the other class's rows that are on the right side of it.
    _, places = np.unique(probabilities, return_inverse=True)
    clicks_at, others_at = np.bincount(places, clicked), np.bincount(places, ~clicked)
    others_below = (np.cumsum(others_at) - others_at / 2) / others
    clicks_above = 1 - (np.cumsum(clicks_at) - clicks_at / 2) / clicks
    right = np.where(clicked, others_below[places], clicks_above[places])
    value = float(right[clicked].mean())
    size = np.where(clicked, clicks, others)
    return Estimate(value, (right - value) / np.sqrt(size * (size - 1)))


def rig_estimate(labels: np.ndarray, probabilities: np.ndarray) -> Estimate | None:
    """Returns the relative information gain, 1 - log loss / entropy of the base rate, by its linearisation.

    Returns None without rows or with one class only.

    Args:
        labels: 0 or 1, `[N]`.
        probabilities: Predictions, `[N]`.
    """
    value = metrics.rig(labels, probabilities)
    if value is None or len(labels) < 2:
        return None
    clicks = np.asarray(labels, np.float64)
    rate = float(clicks.mean())
    entropy = metrics.entropy(rate)
    losses = metrics.log_losses(labels, probabilities)
    loss = float(losses.mean())
    slope = math.log((1 - rate) / rate)  # of the entropy by the base rate
    of_rows = (loss - losses) / entropy + loss / entropy**2 * slope * (clicks - rate)
    return Estimate(value, of_rows / math.sqrt(len(labels) * (len(labels) - 1)))


def log_loss_estimate(labels: np.ndarray, probabilities: np.ndarray) -> Estimate | None:
    """Returns the mean log loss, in nats per row; None with fewer than two rows. The arguments are as above."""
    if len(labels) < 2:
        return None
    losses = metrics.log_losses(labels, probabilities)
    value = float(losses.mean())
    return Estimate(value, (losses - value) / math.sqrt(len(labels) * (len(labels) - 1)))


def calibration_estimate(labels: np.ndarray, probabilities: np.ndarray) -> Estimate | None:
    """Returns the mean predicted over the mean observed probability, a ratio, by its linearisation.

    Returns None without clicks or with fewer than two rows. The arguments are as above.
    """
    value = metrics.calibration(labels, probabilities)
    if value is None or len(labels) < 2:
        return None
    clicks = np.asarray(labels, np.float64)
    of_rows = (np.asarray(probabilities, np.float64) - value * clicks) / clicks.mean()
    return Estimate(value, of_rows / math.sqrt(len(labels) * (len(labels) - 1)))
