"""A sample of a log's rows of bounded size, every row with the same chance."""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from transforms.log.payload import plain


class Sample:
    """Collects rows, and keeps some of them, in the order of the log.

    Args:
        rows: How many rows to keep at most.
        random: Draws them.
    """

    def __init__(self, rows: int, random: np.random.Generator):
        self._rows = rows
        self._random = random
        self._kept: pa.Table | None = None
        self._keys: npt.NDArray[np.float64] = np.empty(0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Adds rows."""
        arrays = [plain(values) for values in batch.columns]
        table = pa.Table.from_arrays(arrays, names=batch.schema.names)
        keys = np.concatenate([self._keys, self._random.random(batch.num_rows)])
        whole = table if self._kept is None else pa.concat_tables([self._kept, table])
        if len(keys) > self._rows:
            kept = np.sort(np.argpartition(keys, self._rows - 1)[: self._rows])
            keys, whole = keys[kept], whole.take(kept).combine_chunks()
        self._kept, self._keys = whole, keys

    def table(self) -> pa.Table | None:
        """Returns the rows that were kept; None where there was no batch."""
        return self._kept
