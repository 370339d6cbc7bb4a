"""Mutual information of pairs of columns and the click, from counts of rows.

The complementarity of two variables is the information on the click that they give together, beyond what each gives
alone: C(x, x') = I({x, x'}; y) - I(x; y) - I(x'; y) in bits, with I(x; y) = H(x) + H(y) - H(x, y) (Attention-Net,
section 4.5, equations 10 and 11). It is negative if both give the same information.

Entropies are estimated from counts n of N rows with K non-empty cells, by default with the correction of Miller and
Madow: H = -sum(n / N log2(n / N)) + (K - 1) / (2 N ln 2). Without it, rare values look informative.

References:
    Miller, "Note on the bias of information estimates", 1955; Paninski, "Estimation of entropy and mutual information",
    2003.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy.special import xlogy

Counts = npt.NDArray[np.int64]
Bits = npt.NDArray[np.float64]
ROWS_A_CELL = 30  # with fewer, permuting rows is faster than drawing cells; permuting needs memory for each row


def entropy_bits(counts: Counts, axis: int | tuple[int, ...], corrected: bool = True) -> Bits:
    """Returns the entropy of a variable in bits, from the counts of its values along the axes.

    Args:
        counts: Number of rows of each value; without any row the entropy is 0.
        axis: The axes of the values; the other axes remain.
        corrected: Whether to add the correction of Miller and Madow.
    """
    total = np.maximum(counts.sum(axis=axis, keepdims=True), 1)
    shares = counts / total
    plug_in = -np.sum(shares * np.log2(np.where(counts > 0, shares, 1.0)), axis=axis)
    if not corrected:
        return np.asarray(plug_in)
    cells = np.maximum((counts > 0).sum(axis=axis), 1)
    return np.asarray(plug_in + (cells - 1) / (2 * np.log(2) * total.squeeze(axis)))


def mutual_information(counts: Counts, corrected: bool = True) -> Bits:
    """Returns I(x; y) in bits.

    Args:
        counts: Number of rows by value of x and of y, `[..., values, classes]`.
        corrected: As in `entropy_bits`.
    """
    of_x = entropy_bits(counts.sum(axis=-1), -1, corrected)
    of_y = entropy_bits(counts.sum(axis=-2), -1, corrected)
    return of_x + of_y - entropy_bits(counts, (-2, -1), corrected)


def complementarity(counts: Counts, corrected: bool = True) -> Bits:
    """Returns C(x, x') in bits.

    Args:
        counts: Number of rows by value of x, of x' and of y, `[..., values of x, values of x', classes]`.
        corrected: As in `entropy_bits`.
    """
    *outer, first, second, classes = counts.shape
    together = mutual_information(counts.reshape(*outer, first * second, classes), corrected)
    alone = mutual_information(counts.sum(axis=-2), corrected) + mutual_information(counts.sum(axis=-3), corrected)
    return together - alone


def chance_complementarity(counts: Counts, draws: int, random: np.random.Generator) -> Bits:
    """Returns the complementarity of two columns under permutations of the clicks, in bits, `[draws]`.

    If the clicks are permuted over all rows, the clicks per cell follow a multivariate hypergeometric distribution.
    They can therefore be drawn from the counts alone.

    Args:
        counts: Number of rows by value of x, of x' and of y, `[values of x, values of x', 2]`.
        draws: The number of permutations.
        random: The random generator.
    """
    rows = counts.sum(axis=-1)
    first, second = np.nonzero(rows)  # drawing takes as long for an empty cell
    is_sparse = rows.sum() < ROWS_A_CELL * len(first)
    clicks = np.zeros((draws, *rows.shape), np.int64)
    clicks[:, first, second] = random.multivariate_hypergeometric(
        rows[first, second], int(counts[..., 1].sum()), draws, method="count" if is_sparse else "marginals"
    )
    # Permuting changes only the entropies with the click; those without it stay those of the log.
    changed = _entropies_with_clicks(rows, clicks)
    own = _entropies_with_clicks(rows, counts[None, ..., 1])
    return complementarity(counts) - (changed - own)


def _entropies_with_clicks(rows: Counts, clicks: Counts) -> Bits:
    """Returns H(x, x', y) - H(x, y) - H(x', y) of each draw in bits, `[draws]`, up to a constant common to all draws.

    Args:
        rows: Number of rows by value of x and of x', `[values of x, values of x']`.
        clicks: Number of clicks of each draw, `[draws, values of x, values of x']`.
    """
    first, second = np.nonzero(rows)
    return (
        _entropy_of_cells(rows[first, second], clicks[:, first, second])
        - _entropy_of_cells(rows.sum(axis=1), clicks.sum(axis=2))
        - _entropy_of_cells(rows.sum(axis=0), clicks.sum(axis=1))
    )


def _entropy_of_cells(rows: Counts, clicks: Counts) -> Bits:
    """Returns the joint entropy of cells and clicks, with the Miller-Madow correction, up to a constant.

    Args:
        rows: Number of rows of each cell, `[cells]`.
        clicks: Number of clicks of each draw and cell, `[draws, cells]`.
    """
    others = rows - clicks
    total = max(int(rows.sum()), 1)
    of_cells = (xlogy(clicks, clicks) + xlogy(others, others)).sum(axis=-1)
    filled = (clicks > 0).sum(axis=-1) + (others > 0).sum(axis=-1)
    return np.asarray((filled / 2 - of_cells) / (total * np.log(2)))


@dataclasses.dataclass(frozen=True)
class ValuePairs:
    """Pairs of values of two columns, with their statistics in the log (Attention-Net, Table 4).

    Attributes:
        first, second: The values' codes, int64 `[P]`.
        rows: Rows that have both values, int64 `[P]`.
        complementarity: Complementarity of "has the first value" and "has the second value", in bits, float64 `[P]`.
        rate_of_first, rate_of_second, rate_of_both: Click-through rates of the rows that have them, float64 `[P]`.
    """

    first: Counts
    second: Counts
    rows: Counts
    complementarity: Bits
    rate_of_first: Bits
    rate_of_second: Bits
    rate_of_both: Bits


def value_pairs(counts: Counts, least_rows: int) -> ValuePairs:
    """Returns all pairs of values that occur together in at least `least_rows` rows.

    Args:
        counts: Number of rows by value of the first column, of the second and of the click, `[values, values, 2]`.
        least_rows: The minimum number of rows, at least 1.
    """
    first, second = np.nonzero(counts.sum(axis=-1) >= max(least_rows, 1))
    both = counts[first, second]
    with_first, with_second = counts.sum(axis=1)[first], counts.sum(axis=0)[second]
    neither = counts.sum(axis=(0, 1)) - with_first - with_second + both
    cells = np.stack([neither, with_second - both, with_first - both, both], axis=1)
    cells = cells.reshape(len(first), 2, 2, 2)
    return ValuePairs(
        first,
        second,
        both.sum(axis=-1),
        complementarity(cells),
        _rate(with_first),
        _rate(with_second),
        _rate(both),
    )


def _rate(counts: Counts) -> Bits:
    return np.asarray(counts[:, 1] / counts.sum(axis=1))
