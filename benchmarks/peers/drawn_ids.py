"""Draws the ids of random rows, for our side of a benchmark and for the peers' servers. Needs numpy only."""

import functools
from collections.abc import Sequence

import numpy as np


def draw_ids(random: np.random.Generator, sizes: Sequence[int], rows: int, zipf: float | None) -> np.ndarray:
    """Returns int32 (rows, fields), ids counted from 0 within each field.

    Args:
        random: The generator.
        sizes: Number of ids of each field.
        rows: Number of rows.
        zipf: Exponent of Zipf's law: id k has a probability proportional to (k + 1)^-zipf, so that the most frequent
            ids come first as in a vocabulary. None: all ids of a field are equally probable.
    """
    if zipf is None:
        return random.integers(0, sizes, (rows, len(sizes)), dtype=np.int32)
    columns = []
    for size in sizes:
        shares = _cumulative_shares(size, zipf)
        columns.append(np.searchsorted(shares, random.random(rows) * shares[-1], side="right"))
    return np.stack(columns, axis=1).astype(np.int32)


@functools.cache
def _cumulative_shares(size: int, zipf: float) -> np.ndarray:
    """Returns the cumulative sums of (k + 1)^-zipf; cached, as they take longer than drawing a large field's ids."""
    return np.cumsum(np.arange(1, size + 1, dtype=np.float64) ** -zipf)
