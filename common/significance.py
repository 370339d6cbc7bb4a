"""Quantiles, p-values and their correction for several tests.

References:
    Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt


def quantile(probability: float, freedom: float | None = None) -> float:
    """Returns a quantile of Student's t distribution, or of the standard normal one without degrees of freedom.

    Args:
        probability: The probability of a lower value.
        freedom: Degrees of freedom; None for the normal distribution.
    """
    if freedom is None:
        return statistics.NormalDist().inv_cdf(probability)
    from scipy.special import stdtrit  # lazy: takes 0.1 s, and a single training does not need it

    return float(stdtrit(freedom, probability))


NORMAL_QUANTILE = quantile(0.975)  # of a 95% interval


def two_sided(statistic: float, freedom: float | None = None) -> float:
    """Returns the probability of at least this distance from 0.

    Args:
        statistic: The value of a statistic, in standard errors.
        freedom: Degrees of freedom; None for the normal distribution.
    """
    if freedom is None:
        return math.erfc(abs(statistic) / math.sqrt(2))
    from scipy.special import stdtr  # lazy, see quantile

    return float(2 * stdtr(freedom, -abs(statistic)))


def holm(p_values: Sequence[float] | npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Returns p-values adjusted for their number by Holm's method.

    An adjusted p-value is the chance that any true hypothesis has one below it. If adjusted p-values below 0.05 count
    as findings, 95% of logs have no false alarm.
    """
    values = np.asarray(p_values, np.float64)
    order = np.argsort(values, kind="stable")
    steps = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1))
    adjusted = np.empty(len(values))
    adjusted[order] = np.minimum(steps, 1)
    return adjusted
