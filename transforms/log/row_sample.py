"""A uniform random sample of a log's rows, with a maximum size."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.transforms.log.payload import decoded


class RowSample:
    """Collects rows and keeps a uniform sample in the order of the log.

    Each row draws a key, and the rows with the smallest keys are kept. A smaller sample is thus a subset of a larger
    one.

    Args:
        rows: The maximum number of rows to keep.
        random: Draws the keys.
    """

    def __init__(self, rows: int, random: np.random.Generator):
        self._rows = rows
        self._random = random
        self._parts: list[pa.Table] = []
        self._keys: npt.NDArray[np.float64] = np.empty(0)
        self._largest = np.inf  # a row with a larger key cannot be in the sample

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        keys = self._random.random(batch.num_rows)
        small = np.flatnonzero(keys <= self._largest)
        arrays = [decoded(values) for values in batch.columns]
        table = pa.Table.from_arrays(arrays, names=batch.schema.names)
        self._parts.append(table if len(small) == len(keys) else table.take(small))
        self._keys = np.concatenate([self._keys, keys[small]])
        if len(self._keys) > 2 * self._rows:
            self._keep(self._rows)

    def _keep(self, rows: int) -> None:
        """Keeps only the `rows` rows with the smallest keys."""
        if len(self._keys) <= rows:
            return
        kept = np.sort(np.argpartition(self._keys, rows - 1)[:rows])
        self._keys = self._keys[kept]
        self._largest = float(self._keys.max())
        self._parts = [pa.concat_tables(self._parts).take(kept).combine_chunks()]

    def table(self, rows: int | None = None) -> pa.Table | None:
        """Ends the collection and returns the sample, or `rows` of its rows. None if no batch was added."""
        self._keep(self._rows if rows is None else min(rows, self._rows))
        return pa.concat_tables(self._parts).combine_chunks() if self._parts else None
