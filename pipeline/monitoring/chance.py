"""How likely two samples of the same distribution differ as much as two logs do.

References:
    Fisher, "On the interpretation of chi-squared from contingency tables, and the calculation of P", 1922.
    Smirnov, "Table for estimating the goodness of fit of empirical distributions", 1948.
"""

from collections.abc import Sequence

import numpy as np


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
