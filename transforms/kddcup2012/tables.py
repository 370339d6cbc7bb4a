"""Memory-mapped tables on disk, with a 64-bit key: sorted by key, in buckets by the key's leading bits.

A join with such a table needs no shuffle and does not load the table: the operating system caches its pages, and
processes share them.
"""

import pathlib
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.files import atomic_path
from ctrpipe.common.hashing import splitmix64

KEY = "key"


def id_keys(ids: np.ndarray) -> np.ndarray:
    """Returns uniformly distributed keys of ids, uint64 [N] -> uint64 [N]; distinct ids have distinct keys."""
    return splitmix64(ids)


def pair_keys(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns keys of pairs, uint64 [N]. Among 100 million pairs, the probability of any collision is 0.0003."""
    with np.errstate(over="ignore"):
        return splitmix64(splitmix64(first) + second)


def write_arrow(path: pathlib.Path, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> None:
    """Writes an Arrow file with an atomic rename, because a Beam runner may repeat work, even concurrently."""
    with atomic_path(path) as unfinished:
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)


def write_table(path: pathlib.Path, table: pa.Table) -> None:
    """Writes an Arrow file with a single batch. Its columns can be read without a copy."""
    write_arrow(path, table.combine_chunks().to_batches() or [_empty(table.schema)], table.schema)


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)


def map_arrow(path: pathlib.Path) -> pa.Table:
    """Memory-maps a file that `write_arrow` wrote."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


def sort_by_key(table: pa.Table) -> pa.Table:
    """Returns a table sorted by key (stable)."""
    return table.take(pa.array(np.argsort(table[KEY].to_numpy(), kind="stable")))


def bucket_of(paths: Sequence[pathlib.Path], bucket: int, bits: int) -> pa.Table:
    """Returns the rows of a bucket from all files, in file order. Each file must be sorted by key."""
    slices = []
    for path in paths:
        table = map_arrow(path)
        low, high = _bounds(table[KEY].to_numpy(), bucket, bits)
        slices.append(table.slice(low, high - low))
    return pa.concat_tables(slices).combine_chunks()


def _bounds(keys: np.ndarray, bucket: int, bits: int) -> tuple[int, int]:
    """Returns the start and end index of a bucket in sorted keys."""
    width = 64 - bits
    low = np.searchsorted(keys, np.uint64(bucket << width)) if bucket else 0
    return int(low), len(keys) if bucket + 1 == 1 << bits else int(
        np.searchsorted(keys, np.uint64(bucket + 1 << width))
    )


def bits_for(size: int, bucket_bytes: int) -> int:
    """Returns the number of bucket bits for a file of `size` bytes and at most about `bucket_bytes` per bucket."""
    return max(0, -(-size // bucket_bytes) - 1).bit_length()


def sums_by_key(keys: np.ndarray, *values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the sorted distinct keys, and the sum by key of each int64 array [N]."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))[: len(keys)]
    return ordered[starts], *(np.add.reduceat(v[order], starts) if len(starts) else v[:0] for v in values)


class Lookup:
    """Looks up keys in a table with buckets `<folder>/<bucket>.arrow`, each sorted by unique keys.

    Args:
        folder: Folder of the buckets.
        bits: Number of leading key bits that select the bucket.
    """

    def __init__(self, folder: pathlib.Path, bits: int):
        self._bits = bits
        self._buckets = [map_arrow(folder / bucket_name(bucket)) for bucket in range(1 << bits)]

    def __call__(self, keys: np.ndarray, present: np.ndarray | None = None) -> pa.Table:
        """Returns the values of the other columns for keys; null if the table lacks a key.

        Args:
            keys: uint64 [N].
            present: bool [N], keys to look up; the result of other keys is null. None: all keys.
        """
        distinct, inverse = np.unique(keys, return_inverse=True)
        parts = []
        for bucket, table in enumerate(self._buckets):
            low, high = _bounds(distinct, bucket, self._bits)
            parts.append(_rows_of(table, distinct[low:high]))
        indices = pa.array(inverse, mask=None if present is None else ~present)
        return pa.concat_tables(parts).combine_chunks().take(indices).combine_chunks()


def _rows_of(table: pa.Table, wanted: np.ndarray) -> pa.Table:
    keys = table[KEY].to_numpy()
    indices = np.searchsorted(keys, wanted)
    absent = indices == len(keys)
    if len(keys):
        indices[absent] = 0
        absent |= keys[indices] != wanted
    return table.drop_columns([KEY]).take(pa.array(indices, mask=absent))


def bucket_name(bucket: int) -> str:
    """Returns the file name of a bucket or a range."""
    return f"{bucket:05d}.arrow"


def numbers(column: pa.ChunkedArray, missing: float = 0) -> np.ndarray:
    """Returns a numeric column as an array [N], with nulls replaced by `missing`."""
    values: np.ndarray = pc.fill_null(column, missing).combine_chunks().to_numpy(zero_copy_only=False)
    return values


def is_present(column: pa.ChunkedArray) -> np.ndarray:
    """Returns whether each value is present (not null), bool [N]."""
    present: np.ndarray = column.is_valid().combine_chunks().to_numpy(zero_copy_only=False)
    return present
