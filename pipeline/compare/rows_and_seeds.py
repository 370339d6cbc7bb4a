"""Tests whether a model is better than another over other test rows and other trainings.

Each side is one or more trainings of a model that differ by their seeds, all scored on the same rows. Rows are crossed
with trainings, and trainings are nested in models. This is the design of diagnostic studies in which several readers of
each method read the same cases, and the estimate is theirs.

References:
    Obuchowski and Rockette, "Hypothesis testing of diagnostic accuracy for multiple readers and multiple tests", 1995.
    Hillis, "A marginal-mean ANOVA approach for analyzing multireader multicase radiological imaging data", 2014:
    readers nested within tests.
    Hillis, "A comparison of denominator degrees of freedom methods for multiple observer ROC analysis", 2007.
    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver operating
    characteristic curves", 1988: the covariance of AUCs on the same rows.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from models import metrics

LEVEL = 0.95  # of the interval
_NORMAL_QUANTILE = 1.959963984540054  # of (1 + LEVEL) / 2


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


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of a metric between two models: the second's mean over its trainings minus the first's.

    Attributes:
        difference: The difference on these rows.
        seeds: The number of trainings of the first and of the second model.
        rows_error: Its standard error over other rows.
        seeds_error: Its standard error over other seeds; None where a side has one training, which cannot tell.
        standard_error: Over both; over rows alone where `seeds_error` is None.
        freedom: Degrees of freedom of `t`; None for the normal distribution.
        t: The difference in standard errors; None where these are 0.
        p: The two-sided probability of such a t by chance; None as `t`.
        interval: The ends of the 95% interval.
    """

    difference: float
    seeds: tuple[int, int]
    rows_error: float
    seeds_error: float | None
    standard_error: float
    freedom: float | None
    t: float | None
    p: float | None
    interval: tuple[float, float]


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


ESTIMATES: dict[str, Callable[[np.ndarray, np.ndarray], Estimate | None]] = {"auc": auc_estimate, "rig": rig_estimate}


def difference(first: Sequence[Estimate], second: Sequence[Estimate]) -> Difference:
    """Returns the difference of two models and how far chance moves it.

    With S_1 and S_2 trainings, the variance over both is s_1^2 / S_1 + s_2^2 / S_2 + max(C_1 + C_2 - 2 C_12, 0):
    s_m^2 is the variance of a metric over the trainings of a model on these rows, C_m the mean covariance over rows of
    two trainings of a model, C_12 that of a training of each. The degrees of freedom are Satterthwaite's.

    Where a side has one training, the variance is that over rows, and the result says nothing of other trainings; with
    one on both sides it is DeLong's test.

    Args:
        first: The first model's estimates, one a training, of the same rows.
        second: The second model's.
    """
    sides = (first, second)
    values = [np.array([estimate.value for estimate in side]) for side in sides]
    components = [np.stack([estimate.components for estimate in side]) for side in sides]
    moved = float(values[1].mean() - values[0].mean())
    seeds = (len(first), len(second))
    if min(seeds) == 1:
        apart = components[1].mean(axis=0) - components[0].mean(axis=0)
        error = float(np.linalg.norm(apart))
        return _tested(moved, seeds, error, None, error, None)
    of_seeds = [float(side.var(ddof=1)) / len(side) for side in values]
    within = sum(_mean_of_pairs(side @ side.T) for side in components)
    between = float(components[0].mean(axis=0) @ components[1].mean(axis=0))
    of_rows = max(within - 2 * between, 0.0)
    variance = sum(of_seeds) + of_rows
    spread = sum(one**2 / (count - 1) for one, count in zip(of_seeds, seeds, strict=True))
    freedom = variance**2 / spread if spread else None
    return _tested(moved, seeds, math.sqrt(of_rows), math.sqrt(sum(of_seeds)), math.sqrt(variance), freedom)


def _mean_of_pairs(covariances: np.ndarray) -> float:
    """Returns the mean of what is off the diagonal."""
    count = len(covariances)
    return float((covariances.sum() - np.trace(covariances)) / (count * (count - 1)))


def _tested(
    moved: float,
    seeds: tuple[int, int],
    rows_error: float,
    seeds_error: float | None,
    error: float,
    freedom: float | None,
) -> Difference:
    if not error:
        return Difference(moved, seeds, rows_error, seeds_error, error, freedom, None, None, (moved, moved))
    t, quantile = moved / error, _NORMAL_QUANTILE
    if freedom is None:
        p = math.erfc(abs(t) / math.sqrt(2))
    else:
        from scipy.special import stdtr, stdtrit  # 0.1 s, which comparing two single runs does without

        p = float(2 * stdtr(freedom, -abs(t)))
        quantile = float(stdtrit(freedom, (1 + LEVEL) / 2))
    interval = (moved - quantile * error, moved + quantile * error)
    return Difference(moved, seeds, rows_error, seeds_error, error, freedom, t, p, interval)
