"""Counts rows by the values of every pair of columns and by the click, in one pass."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

BLOCK_ROWS = 1 << 15  # a block's codes stay in a core's cache while all pairs are counted


class PairCounts:
    """Numbers of rows by the values of each pair of columns and by the click.

    The memory depends on the number of values, not on the number of rows.

    Args:
        sizes: The number of values of each column; 39 columns of 64 values take 49 MB.
    """

    def __init__(self, sizes: Sequence[int]):
        self.sizes = tuple(sizes)
        self.rows = 0
        self._counts = {
            pair: np.zeros(self.sizes[pair[0]] * self.sizes[pair[1]] * 2, np.int64)
            for pair in itertools.combinations(range(len(self.sizes)), 2)
        }

    def add(self, codes: npt.NDArray[np.integer], clicks: npt.NDArray[np.bool_]) -> None:
        """Counts rows.

        Args:
            codes: The value of each column, `[columns, N]`; below the column's size.
            clicks: Whether each row was clicked, `[N]`.
        """
        for start in range(0, codes.shape[1], BLOCK_ROWS):
            self._add_block(codes[:, start : start + BLOCK_ROWS], clicks[start : start + BLOCK_ROWS])
        self.rows += codes.shape[1]

    def _add_block(self, codes: npt.NDArray[np.integer], clicks: npt.NDArray[np.bool_]) -> None:
        whole = codes.astype(np.intp)
        with_click = 2 * whole + clicks
        for (first, second), counts in self._counts.items():
            cells = whole[first] * (2 * self.sizes[second])
            cells += with_click[second]
            counts += np.bincount(cells, minlength=len(counts))

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yields the pairs of columns."""
        yield from self._counts

    def of(self, first: int, second: int) -> npt.NDArray[np.int64]:
        """Returns the number of rows by value of both columns and by click, `[size, size, 2]`."""
        return self._counts[first, second].reshape(self.sizes[first], self.sizes[second], 2)
