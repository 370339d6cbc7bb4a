"""The Tail slice: test rows whose combination of values was rare in training (BERT4CTR, section 4.1.4)."""

import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.payload import PART_ROWS, payload_rows, read_payload

# Seconds per training row in one process, with two columns of ids, and seconds before the first row of a new process.
COUNT_SECONDS, START_SECONDS = 3e-7, 1.0
TAIL = "_tail"  # the column of the slice in the prediction files: TAIL_VALUE, or missing
TAIL_VALUE = b"yes"
GROUPS = 16  # tasks for the workers; each returns an array with one count per combination of the test rows


def tail_rows(
    test: Sequence[pathlib.Path],
    train: Sequence[pathlib.Path],
    columns: Sequence[str],
    max_count: int,
    workers: Workers,
) -> np.ndarray:
    """Returns which test rows have a combination of values that is rare in training, bool [N].

    The counts are exact. A missing value counts as a value. Memory holds the values of the test rows and, in each
    process, one payload file of training rows.

    Args:
        test, train: The payload files.
        columns: The columns of the combination.
        max_count: A combination is rare if at most this many training rows have it.
        workers: The processes that count.
    """
    rows = pa.Table.from_batches(read_payload(test, columns))
    known, codes = _Combinations.of(rows)
    with tempfile.TemporaryDirectory(prefix=".tail-", dir=workers.scratch) as folder:
        path = pathlib.Path(folder) / "combinations.arrow"
        known.save(path)
        size = -(-len(train) // GROUPS)
        groups = [train[start : start + size] for start in range(0, len(train), size)] if train else []
        count = _Count(path, tuple(columns), max_count)
        by_group = workers.map(count, groups, payload_rows(train) * COUNT_SECONDS, START_SECONDS)
    counts = np.zeros(len(known), np.int64)
    for part in by_group:
        counts += part
    is_rare: np.ndarray = (counts <= max_count)[codes]
    return is_rare


@dataclasses.dataclass(frozen=True)
class _Combinations:
    """The distinct combinations of some rows, numbered from 0.

    Args:
        values: The distinct values of each column.
        keys: For each column except the first, the distinct pairs (number of the combination of the preceding columns,
            index of the column's value), each encoded as one integer, ascending. The position of a pair is the number
            of its combination.
    """

    values: list[pa.Array]
    keys: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.keys[-1]) if self.keys else len(self.values[0])

    @classmethod
    def of(cls, rows: pa.Table) -> tuple["_Combinations", np.ndarray]:
        """Returns the combinations, and the combination number of each row, [N]."""
        values = [pc.unique(rows[name]) for name in rows.column_names]
        keys: list[np.ndarray] = []
        codes = _places(rows.column(0), values[0])
        for index in range(1, len(values)):
            pairs = codes * len(values[index]) + _places(rows.column(index), values[index])
            pairs_seen, codes = np.unique(pairs, return_inverse=True)
            keys.append(pairs_seen)
        return cls(values, keys), codes

    def save(self, path: pathlib.Path) -> None:
        """Writes an Arrow file with one row. The values or keys of a column are one list."""
        arrays = {f"values.{index}": values for index, values in enumerate(self.values)}
        arrays |= {f"keys.{index}": pa.array(keys) for index, keys in enumerate(self.keys)}
        lists = {name: pa.LargeListArray.from_arrays([0, len(array)], array) for name, array in arrays.items()}
        row = pa.RecordBatch.from_pydict(lists)
        with pa.ipc.new_file(path, row.schema) as file:
            file.write_batch(row)

    @classmethod
    def load(cls, path: pathlib.Path) -> "_Combinations":
        """Reads the output of `save`."""
        with pa.ipc.open_file(path) as file:
            row = file.get_batch(0)
        values = [row[name].flatten() for name in row.schema.names if name.startswith("values.")]
        keys = [row[name].flatten().to_numpy() for name in row.schema.names if name.startswith("keys.")]
        return cls(values, keys)

    def number(self, rows: pa.Table) -> np.ndarray:
        """Returns the combination number of each row, [N]; -1 for an unknown combination."""
        codes = _places(rows.column(0), self.values[0])
        for column, values, keys in zip(rows.columns[1:], self.values[1:], self.keys, strict=True):
            places = _places(column, values)
            pairs = np.where((codes < 0) | (places < 0), -1, codes * len(values) + places)
            nearest = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
            codes = np.where(keys[nearest] == pairs, nearest, -1)
        return codes


def _places(column: pa.ChunkedArray, values: pa.Array) -> np.ndarray:
    """Returns the index of each value among the distinct values, int64 [N]; -1 for an unknown value."""
    places: np.ndarray = pc.index_in(column, values).fill_null(-1).to_numpy()
    return places.astype(np.int64)


@dataclasses.dataclass(frozen=True)
class _Count:
    combinations: pathlib.Path
    columns: tuple[str, ...]
    max_count: int

    def __call__(self, parts: Sequence[pathlib.Path]) -> np.ndarray:
        """Returns the number of rows with each combination in these files, capped at max_count + 1."""
        known = _load(self.combinations)
        counts = np.zeros(len(known), np.int64)
        for part in parts:
            for batch in read_payload([part], self.columns, PART_ROWS):
                codes = known.number(pa.Table.from_batches([batch]))
                counts += np.bincount(codes[codes >= 0], minlength=len(known))
        most = self.max_count + 1
        return np.minimum(counts, most).astype(np.min_scalar_type(most))


@functools.lru_cache(maxsize=1)
def _load(path: pathlib.Path) -> _Combinations:
    """Loads the combinations once per process instead of once per group of files."""
    return _Combinations.load(path)
