"""Mutual information of pairs of columns with a click, from counts of rows.

The complementarity of two variables is what they say of the click together beyond what each says alone,
C(x, x') = I({x, x'}; y) - I(x; y) - I(x'; y) in bits, with I(x; y) = H(x) + H(y) - H(x, y) (Attention-Net, section 4.5,
equations 10 and 11). It is negative where both say the same.

Entropies are estimated from counts n of N rows with K cells that are not empty, by default with the correction of
Miller and Madow: H = -sum(n / N log2(n / N)) + (K - 1) / (2 N ln 2). Without it, rare values look informative.

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
ROWS_A_CELL = (
    30  # below it NumPy permutes rows faster than it draws cells, above it needs a place in memory for each row
)


def entropy_bits(counts: Counts, axis: int | tuple[int, ...], corrected: bool = True) -> Bits:
    """Returns the entropy in bits of the variable whose values' rows are counted along the axes.

    Args:
        counts: Rows of each value, no row at all being an entropy of 0.
        axis: The axes over the values; the others stay.
        corrected: Whether to add Miller's and Madow's correction.
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
        counts: Rows by value of x and of y, `[..., values, classes]`.
        corrected: As in `entropy_bits`.
    """
    of_x = entropy_bits(counts.sum(axis=-1), -1, corrected)
    of_y = entropy_bits(counts.sum(axis=-2), -1, corrected)
    return of_x + of_y - entropy_bits(counts, (-2, -1), corrected)


def complementarity(counts: Counts, corrected: bool = True) -> Bits:
    """Returns C(x, x') in bits.

    Args:
        counts: Rows by value of x, of x' and of y, `[..., values of x, values of x', classes]`.
        corrected: As in `entropy_bits`.
    """
    *outer, first, second, classes = counts.shape
    together = mutual_information(counts.reshape(*outer, first * second, classes), corrected)
    alone = mutual_information(counts.sum(axis=-2), corrected) + mutual_information(counts.sum(axis=-3), corrected)
    return together - alone


def chance_complementarity(counts: Counts, draws: int, random: np.random.Generator) -> Bits:
    """Returns complementarities of the two columns and permuted clicks, in bits, `[draws]`.

    A permutation of the clicks over all rows gives each cell a number of clicks that is multivariate hypergeometric, so
    that it is drawn from the counts alone.

    Args:
        counts: Rows by value of x, of x' and of y, `[values of x, values of x', 2]`.
        draws: The number of permutations.
        random: Draws them.
    """
    rows = counts.sum(axis=-1)
    first, second = np.nonzero(rows)  # drawing costs as much in a cell without rows
    is_sparse = rows.sum() < ROWS_A_CELL * len(first)
    clicks = np.zeros((draws, *rows.shape), np.int64)
    clicks[:, first, second] = random.multivariate_hypergeometric(
        rows[first, second], int(counts[..., 1].sum()), draws, method="count" if is_sparse else "marginals"
    )
    # What permuting changes of C: the entropies with the click. Those without it are the log's own.
    changed = _entropies_with_clicks(rows, clicks)
    own = _entropies_with_clicks(rows, counts[None, ..., 1])
    return complementarity(counts) - (changed - own)


def _entropies_with_clicks(rows: Counts, clicks: Counts) -> Bits:
    """Returns H(x, x', y) - H(x, y) - H(x', y) of each draw in bits, `[draws]`, but for what all draws share.

    Args:
        rows: By value of x and of x', `[values of x, values of x']`.
        clicks: Of each draw, `[draws, values of x, values of x']`.
    """
    first, second = np.nonzero(rows)
    return (
        _entropy_of_cells(rows[first, second], clicks[:, first, second])
        - _entropy_of_cells(rows.sum(axis=1), clicks.sum(axis=2))
        - _entropy_of_cells(rows.sum(axis=0), clicks.sum(axis=1))
    )


def _entropy_of_cells(rows: Counts, clicks: Counts) -> Bits:
    """Returns the entropy of cells and clicks together, with Miller's and Madow's correction, but for a constant.

    Args:
        rows: Of each cell, `[cells]`.
        clicks: Of each draw and cell, `[draws, cells]`.
    """
    others = rows - clicks
    total = max(int(rows.sum()), 1)
    of_cells = (xlogy(clicks, clicks) + xlogy(others, others)).sum(axis=-1)
    filled = (clicks > 0).sum(axis=-1) + (others > 0).sum(axis=-1)
    return np.asarray((filled / 2 - of_cells) / (total * np.log(2)))


@dataclasses.dataclass(frozen=True)
class ValuePairs:
    """Pairs of a value of one column and a value of another, with what the log says of them (Attention-Net, Table 4).

    Attributes:
        first, second: The values' codes, int64 `[P]`.
        rows: Rows that have both values, int64 `[P]`.
        complementarity: Of "has the first value" and "has the second value", in bits, float64 `[P]`.
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
    """Returns all pairs of values that at least `least_rows` rows have together.

    Args:
        counts: Rows by value of the first column, of the second and of the click, `[values, values, 2]`.
        least_rows: At least 1.
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
