"""Numbers the groups of rows, such as users, that `evaluation.group` names."""

import hashlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.grouped_auc import NO_GROUP


def group_numbers(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Returns a number for each row's value of a column, int64 [N]; NO_GROUP where it is missing.

    The number is a hash of the value, so it is the same in all parts of a log.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if not pa.types.is_dictionary(column.type):
        column = pc.dictionary_encode(column)
    values = column.dictionary
    if pa.types.is_floating(values.type):
        values = values.cast(pa.string())
    hashes = [NO_GROUP if not value else _number(value) for value in values.cast(pa.binary()).to_pylist()]
    numbers = np.array([*hashes, NO_GROUP], np.int64)
    indices = column.indices.fill_null(len(hashes)).to_numpy(zero_copy_only=False)
    chosen: np.ndarray = numbers[indices]
    return chosen


def _number(value: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(value, digest_size=8).digest(), "little", signed=True) or 1
