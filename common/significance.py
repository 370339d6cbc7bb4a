"""Quantiles, p-values and their correction for several tests.

References:
    Fisher, "On the interpretation of chi-squared from contingency tables, and the calculation of P", 1922.
    Smirnov, "Table for estimating the goodness of fit of empirical distributions", 1948.
    Holm, "A simple sequentially rejective multiple test procedure", 1979.
"""

import math
import statistics
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

ALPHA = 0.05  # family-wise error rate of a table

_SHOWN = 0.0001  # the smallest p-value that is written


def quantile(probability: float, freedom: float | None = None) -> float:
    """Returns a quantile of Student's t distribution, or of the standard normal one without degrees of freedom.

    Args:
        probability: The probability of a lower value.
        freedom: Degrees of freedom; None for the normal distribution.
    """
    if freedom is None:
        return statistics.NormalDist().inv_cdf(probability)
    from scipy.special import stdtrit  # lazy: takes 0.1 s, and a single training run does not need it

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


def p_text(value: float | None) -> str:
    """Writes a p-value with two digits, "<0.0001" for a smaller one, and "-" for None.

    Example:
        >>> p_text(0.15964), p_text(0.0), p_text(None)
        ('0.16', '<0.0001', '-')
    """
    if value is None:
        return "-"
    return f"{value:.2g}" if value >= _SHOWN else f"<{_SHOWN}"


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


def shares_differ(share: float, other: float, rows: Sequence[int]) -> float:
    """Returns the two-sided p-value of Fisher's exact test that a share is equal in two logs.

    Args:
        share, other: The share in each log.
        rows: The number of rows of each log.
    """
    from scipy.stats import hypergeom  # lazy: takes 0.5 s, and only an exceeded limit needs it

    if not all(rows):
        return 1.0
    counts = [round(each * count) for each, count in zip((share, other), rows, strict=True)]
    drawn = hypergeom(sum(rows), sum(counts), rows[0])
    return float(min(1.0, 2 * min(drawn.cdf(counts[0]), drawn.sf(counts[0] - 1))))


def cumulated_differ(
    cumulated: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray], rows: Sequence[int]
) -> float:
    """Returns the p-value of Kolmogorov and Smirnov's test that two logs have the same distribution of numbers.

    It is exact in the limit of many different numbers, and too large with few.

    Args:
        cumulated, other: Of each log, points `[P]` and the shares of the numbers up to them, `[P]`.
        rows: The number of numbers of each log.
    """
    from scipy.stats import kstwobign  # lazy: takes 0.5 s, and only an exceeded limit needs it

    if not all(rows):
        return 1.0
    points = np.union1d(cumulated[0], other[0])
    first, second = (np.interp(points, *each, left=0.0, right=1.0) for each in (cumulated, other))
    apart = float(np.max(np.abs(first - second)))
    return float(kstwobign.sf(apart * np.sqrt(rows[0] * rows[1] / sum(rows))))
