"""Tests for an interaction of two columns: effects on the click that do not add up in log-odds.

The additive model is logit P(y | x, x') = a_x + b_x'. Its deviance G² = 2 Σ n ln(n / e) compares the rows n of each
cell with the rows e that the model expects; this is the log-linear test of no three-way interaction. If cells have few
rows, G² does not follow χ². Its distribution is therefore simulated: clicks are drawn from the fitted model, and the
model is fitted again to each draw. Complementarity is not such a test: it is not 0 if the log-odds add up.

References:
    Bishop, Fienberg and Holland, "Discrete Multivariate Analysis", 1975, sections 3.5 and 4.2; Efron and Tibshirani,
    "An Introduction to the Bootstrap", 1993, section 6.5.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import gammaincc

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
MOST_STEPS = 200  # maximum number of steps of the fit
TOLERANCE = 0.05  # in rows, for every margin; the error of G² is its square
# If the first draws give a p-value below BORDERLINE and z is at most SURE, MORE times as many logs are drawn: adjusted
# for hundreds of pairs, the p-value depends on a tail that few draws estimate poorly.
BORDERLINE, SURE, MORE = 0.01, 10.0, 9
LEAST_VARIANCE = 0.1  # of G²; it is 2 with one degree of freedom; below this there is nothing to test


@dataclasses.dataclass(frozen=True)
class Cells:
    """The non-empty cells of a table of two columns.

    Attributes:
        first, second: The values of x and of x' of each cell, int64 `[cells]`.
        sums: Matrices that sum cells by value of x and by value of x', `[values, cells]` each.
    """

    first: Counts
    second: Counts
    sums: tuple[csr_array, csr_array]


@dataclasses.dataclass(frozen=True)
class Interplay:
    """The deviation of two columns' clicks from the additive model.

    Attributes:
        bits: G² minus its mean under the additive model, in bits per row: the information beyond that model.
        z: The same in standard deviations under the additive model; 0 if there is nothing to test, such as when one
            column determines the other.
        p_value: Probability of a G² at least as large under the additive model, by a gamma distribution with its mean
            and variance.
    """

    bits: float
    z: float
    p_value: float


def interplay(counts: Counts, draws: int, random: np.random.Generator) -> Interplay:
    """Returns the deviation of the clicks from the additive model.

    Args:
        counts: Number of rows by value of x, of x' and of the click, `[values of x, values of x', 2]`.
        draws: Number of logs drawn from the fitted model, at least 2; ten times as many for a borderline pair.
        random: The random generator.
    """
    cells, rows = filled_cells(counts.sum(axis=2))
    observed = counts[cells.first, cells.second][:, :, None]
    expected = fit_additive(cells, observed, np.ones(observed.shape))
    statistic = float(deviance(observed, expected)[0])
    likely = _shrunk(cells, observed)
    of_chance = _drawn(cells, rows, likely, draws, random)
    first = _against(statistic, of_chance, int(rows.sum()))
    if first.p_value >= BORDERLINE or first.z > SURE:
        return first
    more = [_drawn(cells, rows, likely, draws, random) for _ in range(MORE)]
    return _against(statistic, np.concatenate([of_chance, *more]), int(rows.sum()))


def _drawn(cells: Cells, rows: Counts, expected: Floats, draws: int, random: np.random.Generator) -> Floats:
    """Returns G² of logs drawn from a fitted model, `[draws]`, with the model fitted again to each."""
    rate = np.clip(expected[:, 1] / rows[:, None], 0, 1)
    clicks = random.binomial(rows[:, None], rate, (len(rows), draws))
    drawn = np.stack([rows[:, None] - clicks, clicks], axis=1)
    return deviance(drawn, fit_additive(cells, drawn, np.repeat(expected, draws, axis=2)))


def _against(statistic: float, of_chance: Floats, rows: int) -> Interplay:
    """Compares a G² with the simulated G²; returns the deviation."""
    mean, variance = float(of_chance.mean()), float(of_chance.var(ddof=1))
    if variance < LEAST_VARIANCE:
        return Interplay(0.0, 0.0, 1.0)
    p_value = float(gammaincc(mean**2 / variance, statistic * mean / variance))
    return Interplay(float((statistic - mean) / (2 * np.log(2) * rows)), (statistic - mean) / variance**0.5, p_value)


def filled_cells(rows: Counts) -> tuple[Cells, Counts]:
    """Returns the non-empty cells of a table and their numbers of rows, `[cells]`.

    Args:
        rows: Number of rows by value of x and of x', `[values of x, values of x']`.
    """
    first, second = np.nonzero(rows)
    sums = tuple(
        csr_array((np.ones(len(first)), (value, np.arange(len(first)))), (size, len(first)))
        for value, size in zip((first, second), rows.shape, strict=True)
    )
    return Cells(first, second, sums), rows[first, second]


def _shrunk(cells: Cells, counts: Counts) -> Floats:
    """Returns the rows expected by an additive model whose rates are shrunk towards the mean rate.

    The observed rates of rare values spread more than the true rates. Logs drawn from the observed rates would have
    less noise than the log, and their G² would be too small.

    Args:
        cells: The non-empty cells.
        counts: Number of rows of the log by cell and click, `[cells, 2, 1]`.
    """
    margins = [_shrunk_margin(sums @ counts[:, :, 0]) for sums in cells.sums]
    return _fit(cells, counts.sum(axis=1, keepdims=True), margins, np.ones(counts.shape))


def _shrunk_margin(margin: Floats) -> Floats:
    """Returns rows by value and click, `[values, 2]`, with rates shrunk towards the mean rate.

    The amount of shrinkage follows from the spread of the rates beyond chance, by the method of moments for a
    beta-binomial distribution (Kleinman, 1973). The total number of clicks does not change.
    """
    rows, clicks = margin.sum(axis=1), margin[:, 1]
    total, rate = rows.sum(), clicks.sum() / rows.sum()
    within = rate * (1 - rate)
    apart = (rows * np.square(_ratio(clicks, rows) - rate)).sum() - within * ((rows > 0).sum() - 1)
    between = apart / max(total - np.square(rows).sum() / total, 1)
    known = rows * between
    shrunk = rows * rate if between <= 0 else (known * clicks + within * rows * rate) / np.maximum(known + within, 1e-9)
    shrunk = shrunk * (clicks.sum() / max(shrunk.sum(), 1e-9))
    return np.stack([rows - shrunk, shrunk], axis=1)


def fit_additive(cells: Cells, counts: Counts, start: Floats) -> Floats:
    """Returns the rows that the additive model expects, in the shape of `counts`.

    Args:
        cells: The non-empty cells; most cells are empty for columns with many values.
        counts: Number of rows by cell, click and log, `[cells, 2, logs]`.
        start: Rows expected by any additive model, in the same shape; a start near the result saves steps.
    """
    margins = [sums @ counts.reshape(len(counts), -1) for sums in cells.sums]
    return _fit(cells, counts.sum(axis=1, keepdims=True), margins, start)


def _fit(cells: Cells, rows: npt.NDArray[np.number], margins: Sequence[Floats], start: Floats) -> Floats:
    """Returns the rows of an additive model with these margins, by iterative proportional fitting.

    Args:
        cells: The non-empty cells.
        rows: Number of rows of each cell, `[cells, 1, logs]`.
        margins: The margins by value of x and by value of x': rows by value, click and log, `[values, 2 * logs]` each.
        start: As in `fit_additive`.
    """
    shape = start.shape
    sides = list(zip((cells.first, cells.second), cells.sums, margins, strict=True))
    expected = start.copy()
    for _ in range(MOST_STEPS):
        off = 0.0
        for value, sums, margin in sides:
            now = sums @ expected.reshape(shape[0], -1)
            off = max(off, float(np.abs(now - margin).max()))
            expected *= _ratio(margin, now)[value].reshape(shape)
        now = expected.sum(axis=1, keepdims=True)
        off = max(off, float(np.abs(now - rows).max()))
        expected *= _ratio(rows, now)  # last: makes the rows of each cell exact
        if off < TOLERANCE:
            break
    return expected


def _ratio(wanted: npt.NDArray[np.number], now: Floats) -> Floats:
    return np.asarray(np.divide(wanted, now, out=np.zeros_like(now), where=now > 0))


def deviance(counts: npt.NDArray[np.number], expected: Floats) -> Floats:
    """Returns G² of each log, `[logs]`; the arguments are `[cells, 2, logs]`."""
    ratio = np.divide(counts, expected, out=np.ones(expected.shape), where=(counts > 0) & (expected > 0))
    return np.asarray(2 * (counts * np.log(ratio)).sum(axis=(0, 1)))
