"""Tests whether a model is better than another, over other test rows and other training runs.

Each side is one or more training runs of a model that differ by their seeds, all scored on the same rows. Rows are
crossed with training runs, and training runs are nested in models. Diagnostic studies have the same design: several
readers of each method read the same cases. The estimator comes from these studies.

References:
    Obuchowski and Rockette, "Hypothesis testing of diagnostic accuracy for multiple readers and multiple tests", 1995.
    Hillis, "A marginal-mean ANOVA approach for analyzing multireader multicase radiological imaging data", 2014:
    readers nested within tests.
    Hillis, "A comparison of denominator degrees of freedom methods for multiple observer ROC analysis", 2007.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from ctrpipe.common.estimates import Estimate, auc_estimate, rig_estimate
from ctrpipe.common.significance import quantile, two_sided

LEVEL = 0.95  # of the confidence interval


@dataclasses.dataclass(frozen=True)
class Difference:
    """The difference of a metric between two models: the second model's mean over training runs minus the first's.

    Attributes:
        difference: The difference on these rows.
        seeds: The number of training runs of the first and of the second model.
        rows_error: Its standard error over other rows.
        seeds_error: Its standard error over other seeds. None if a side has one training run: it cannot be estimated.
        standard_error: Its standard error over both, or over rows only if `seeds_error` is None.
        freedom: Degrees of freedom of `t`. None for the normal distribution.
        t: The difference in standard errors. None if the standard error is 0.
        p: The two-sided p-value of `t`. None if `t` is None.
        interval: The ends of the 95% confidence interval.
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


ESTIMATES: dict[str, Callable[[np.ndarray, np.ndarray], Estimate | None]] = {"auc": auc_estimate, "rig": rig_estimate}


def difference(first: Sequence[Estimate], second: Sequence[Estimate]) -> Difference:
    """Returns the difference of two models with its standard errors and test.

    With S_1 and S_2 training runs, the variance over both is s_1^2 / S_1 + s_2^2 / S_2 + max(C_1 + C_2 - 2 C_12, 0).
    s_m^2 is the variance of a metric over the training runs of model m on these rows, C_m the mean covariance over rows
    of two training runs of model m, and C_12 the mean covariance of one training run of each model. The degrees of
    freedom are Satterthwaite's.

    If a side has one training run, the variance is over rows only, and the result does not generalize to other training
    runs. With one on both sides, it is DeLong's test.

    Args:
        first: The first model's estimates on the same rows, one per training run.
        second: The second model's estimates.
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


def mean_of(trainings: Sequence[Estimate]) -> Difference:
    """Returns a model's mean over its training runs as a difference from 0, with its interval over rows and seeds.

    Args:
        trainings: The model's estimates on the same rows, one per training run.
    """
    nothing = Estimate(0.0, np.zeros_like(trainings[0].components))
    return difference([nothing] * len(trainings), trainings)


def _mean_of_pairs(covariances: np.ndarray) -> float:
    """Returns the mean of the off-diagonal elements."""
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
    t = moved / error
    interval = interval_of(moved, error, freedom, LEVEL)
    return Difference(moved, seeds, rows_error, seeds_error, error, freedom, t, two_sided(t, freedom), interval)


def interval_of(moved: float, error: float, freedom: float | None, level: float) -> tuple[float, float]:
    """Returns the ends of a difference's confidence interval.

    Args:
        moved: The difference.
        error: Its standard error.
        freedom: Degrees of freedom; None for the normal distribution.
        level: Confidence level.
    """
    half = quantile((1 + level) / 2, freedom) * error
    return moved - half, moved + half
