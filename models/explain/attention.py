"""Statistics of attention maps: picked tokens, and the rank that a projection uses."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]


def picked_by_row(attention: Floats, k: int) -> npt.NDArray[np.float64]:
    """Returns the share of heads in which a token is among a query's k largest, `[rows, queries, tokens]`.

    Tokens without attention are never picked. All ties with the k-th are picked, as in Attention-Net's top k.

    Args:
        attention: Weights, `[rows, heads, queries, tokens]`.
        k: The number of tokens to pick.
    """
    count = min(k, attention.shape[-1])
    kth = np.partition(attention, -count, axis=-1)[..., [-count]]
    return np.asarray(((attention >= kth) & (attention > 0)).mean(axis=1))


def rank_holding(singular: Sequence[float] | Floats, share: float) -> int:
    """Returns how many of the largest singular values make up a share of the sum of all squared values."""
    squares = np.sort(np.asarray(singular, np.float64))[::-1] ** 2
    if not squares.sum():
        return 0
    return int(np.searchsorted(np.cumsum(squares) / squares.sum(), share - 1e-12) + 1)
