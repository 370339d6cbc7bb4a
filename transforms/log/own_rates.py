"""Finds columns computed from the labels of the log's own rows: click rates and click counts by key.

A number computed from a row's own label reveals some of it. Such numbers are closer to the clicks of their rows than
chance allows for any other number, however well it predicts: the clicks of n rows with the true rate p vary by n p (1 -
p).
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

MOST_SPREAD = 0.5  # of what chance has, of click rates about the values of a column that were computed from them
LEAST_KEYS = 20  # with clicks, of such a column
LEAST_VARIANCE = 2.0  # n p (1 - p) of its n rows, before a key counts
_LEAST_RATE = 1e-6
_FITS = 3  # of the rates, whose variance depends on them
_SURPRISE = 4.75  # standard deviations that chance exceeds once in a million
_PERCENT = 100.0


def are_own_rates(
    numbers: Floats, keys: Codes, clicks: npt.NDArray[np.bool_], least_variance: float = LEAST_VARIANCE
) -> bool:
    """Returns whether numbers are click rates computed from these clicks.

    A rate is (clicks + a) / (rows + b) over all rows of a key: a = b = 0 for the mean, larger values for a rate with a
    prior. It may be given in percent or as log-odds. The rows may be a subset of the rows that the rate was computed
    from.

    Args:
        numbers: The column, [N].
        keys: The key of each row, from 0; each key has one number.
        clicks: The label of each row.
        least_variance: Keys whose clicks vary less than this by chance are ignored.
    """
    rows = np.bincount(keys).astype(np.float64)
    values = np.zeros(len(rows))
    values[keys] = numbers
    clicked = np.asarray(np.bincount(keys, clicks.astype(np.float64)), np.float64)
    return any(_are_rates_of(rates, rows, clicked, least_variance) for rates in _as_rates(values, float(clicks.mean())))


def _as_rates(values: Floats, rate: float) -> list[Floats]:
    """Returns the values as click rates, for each interpretation that fits: rates, percent, log-odds."""
    least, greatest = values.min(), values.max()
    rates = [values / scale for scale in (1.0, _PERCENT) if least >= 0 and greatest <= scale]
    if least < 0 and 0 < rate < 1:  # log-odds, or what they add to those of all rows
        rates += [np.exp(-np.logaddexp(0, -values - shift)) for shift in (0.0, math.log(rate / (1 - rate)))]
    return rates


def _are_rates_of(rates: Floats, rows: Floats, clicks: Floats, least_variance: float) -> bool:
    """Returns whether the clicks of keys are closer to their rates than chance allows for other rates.

    From (clicks + a) / (rows + b) = x follows clicks = rows x + b x - a for each key. Small keys with equal values may
    be merged, because b x - a then grows nearly in proportion to their rows.

    Args:
        rates, rows, clicks: The possible rate of each key, its rows and its clicks.
        least_variance: See `are_own_rates`.
    """
    terms = np.stack([rates, np.ones_like(rates), rows * rates, rows])
    expected: Floats = rows * rates
    for _ in range(_FITS):
        chance = np.clip(expected / rows, _LEAST_RATE, 1 - _LEAST_RATE)
        variance = rows * chance * (1 - chance)
        counted = variance >= least_variance
        if counted.sum() < LEAST_KEYS:
            return False
        deviation = np.sqrt(variance[counted])
        weights, *_ = np.linalg.lstsq((terms[:, counted] / deviation).T, clicks[counted] / deviation, rcond=None)
        expected = np.asarray(weights @ terms, np.float64)
    squares = ((clicks - expected) ** 2)[counted] / variance[counted]
    return _are_too_small(squares, len(terms), variance[counted], chance[counted])


def _are_too_small(squares: Floats, fitted: int, variance: Floats, chance: Floats) -> bool:
    """Returns whether squared deviations, relative to their variance, are smaller than by chance.

    Args:
        squares: The squares, [N].
        fitted: Number of fitted parameters.
        variance: The variance of each key's clicks, n p (1 - p).
        chance: The rate of each key, p.
    """
    left = len(squares) - fitted
    if left < LEAST_KEYS // 2:
        return False
    mean = float(squares.sum()) / left  # 1 by chance, with the variance below for each of them
    freedom = 2 * left / float((2 + (1 - 6 * chance * (1 - chance)) / variance).mean())
    # Wilson and Hilferty (1931): the cube root of chi-square by its degrees of freedom is nearly normal.
    usual, deviation = 1 - 2 / (9 * freedom), math.sqrt(2 / (9 * freedom))
    return mean < MOST_SPREAD and (usual - mean ** (1 / 3)) / deviation > _SURPRISE


def are_own_counts(numbers: Floats, keys: Codes, clicks: npt.NDArray[np.bool_]) -> bool:
    """Returns whether whole numbers are the click counts of each key over a larger log that includes these rows.

    Of x counted clicks of a key, these rows contain the share f, with variance f (1 - f) x. If x counts clicks of other
    rows only, the clicks of the key's n rows have variance n p (1 - p).

    Args:
        numbers, keys, clicks: See `are_own_rates`.
    """
    rows = np.bincount(keys).astype(np.float64)
    counts = np.zeros(len(rows))
    counts[keys] = numbers
    clicked = np.bincount(keys, clicks.astype(np.float64))
    if counts.min() < 0 or (counts % 1).any() or (clicked > counts).any() or not clicked.any():
        return False
    expected = clicked.sum() / counts.sum() * counts
    chance = np.clip(expected / rows, _LEAST_RATE, 1 - _LEAST_RATE)
    counted = (expected > 0) & (chance < 1 - _LEAST_RATE)
    variance = (rows * chance * (1 - chance))[counted]
    return _are_too_small(((clicked - expected) ** 2)[counted] / variance, 1, variance, chance[counted])
