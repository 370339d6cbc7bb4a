"""The Tail slice: test rows whose combination of values was rare in training (BERT4CTR, section 4.1.4)."""

import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.processes import Workers
from transforms.log.payload import PART_ROWS, payload_rows, read_payload

# What a training row takes in one process, two columns of ids; what a new process takes before its first.
COUNT_SECONDS, START_SECONDS = 3e-7, 1.0
TAIL = "_tail"  # the slice's column beside the predictions: TAIL_VALUE, or missing
TAIL_VALUE = b"yes"
GROUPS = 16  # of training parts; each hands back one count for every combination of the test rows


def tail_rows(
    test: Sequence[pathlib.Path],
    train: Sequence[pathlib.Path],
    columns: Sequence[str],
    max_count: int,
    workers: Workers,
) -> np.ndarray:
    """Returns which test rows have a combination that came at most `max_count` times in training, bool [N].

    Exact. In memory lie the test rows' values and, in each process, one part of the training rows; missing is a value
    like any other.

    Args:
        test, train: The parts of the payloads.
        columns: Whose values make the combination.
        max_count: Of the training rows that have it.
        workers: Who counts.
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
    """The different combinations of some rows, each with a number.

    Args:
        values: By column, its different values.
        keys: By column but the first, the different pairs, ascending, of the number of the combination of the columns
            before it and the place of its value, as one number.
    """

    values: list[pa.Array]
    keys: list[np.ndarray]

    def __len__(self) -> int:
        return len(self.keys[-1]) if self.keys else len(self.values[0])

    @classmethod
    def of(cls, rows: pa.Table) -> tuple["_Combinations", np.ndarray]:
        """Returns the combinations, and the number of each row's combination, [N]."""
        values = [pc.unique(rows[name]) for name in rows.column_names]
        keys: list[np.ndarray] = []
        codes = _places(rows.column(0), values[0])
        for index in range(1, len(values)):
            pairs = codes * len(values[index]) + _places(rows.column(index), values[index])
            pairs_seen, codes = np.unique(pairs, return_inverse=True)
            keys.append(pairs_seen)
        return cls(values, keys), codes

    def save(self, path: pathlib.Path) -> None:
        """Writes an Arrow file with one row: a column's values, or keys, are a list."""
        arrays = {f"values.{index}": values for index, values in enumerate(self.values)}
        arrays |= {f"keys.{index}": pa.array(keys) for index, keys in enumerate(self.keys)}
        lists = {name: pa.LargeListArray.from_arrays([0, len(array)], array) for name, array in arrays.items()}
        row = pa.RecordBatch.from_pydict(lists)
        with pa.ipc.new_file(path, row.schema) as file:
            file.write_batch(row)

    @classmethod
    def load(cls, path: pathlib.Path) -> "_Combinations":
        """Reads what `save` wrote."""
        with pa.ipc.open_file(path) as file:
            row = file.get_batch(0)
        values = [row[name].flatten() for name in row.schema.names if name.startswith("values.")]
        keys = [row[name].flatten().to_numpy() for name in row.schema.names if name.startswith("keys.")]
        return cls(values, keys)

    def number(self, rows: pa.Table) -> np.ndarray:
        """Returns the number of each row's combination, [N]; -1 where there is none such."""
        codes = _places(rows.column(0), self.values[0])
        for column, values, keys in zip(rows.columns[1:], self.values[1:], self.keys, strict=True):
            places = _places(column, values)
            pairs = np.where((codes < 0) | (places < 0), -1, codes * len(values) + places)
            nearest = np.minimum(np.searchsorted(keys, pairs), len(keys) - 1)
            codes = np.where(keys[nearest] == pairs, nearest, -1)
        return codes


def _places(column: pa.ChunkedArray, values: pa.Array) -> np.ndarray:
    """Returns each value's place among the different ones, int64 [N]; -1 where it is none of them."""
    places: np.ndarray = pc.index_in(column, values).fill_null(-1).to_numpy()
    return places.astype(np.int64)


@dataclasses.dataclass(frozen=True)
class _Count:
    combinations: pathlib.Path
    columns: tuple[str, ...]
    max_count: int

    def __call__(self, parts: Sequence[pathlib.Path]) -> np.ndarray:
        """Returns how often each combination comes in these parts, at most max_count + 1."""
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
    """Loads the combinations once in a process, not for each group of parts."""
    return _Combinations.load(path)
