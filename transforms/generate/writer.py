"""Converts blocks of rows to the lines of a log."""

import contextlib
import gzip
import pathlib
from collections.abc import Iterator
from typing import BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ctrpipe.common.hashing import hash_values, hex_tokens, splitmix64
from ctrpipe.transforms.generate.blocks import Block
from ctrpipe.transforms.generate.columns import Categorical, Column
from ctrpipe.transforms.generate.formats import LogLayout

_FIRST_HOUR = np.datetime64("2014-10-21T00", "h")
# Level 6 makes the log an eighth smaller, but takes longer than all other steps together.
_GZIP_LEVEL = 1


def block_table(spec: LogLayout, block: Block, labels: np.ndarray, seed: int) -> pa.Table:
    """Returns the rows as a table in file column order; missing values are null."""
    columns: list[pa.Array] = [pa.array(labels)]
    if spec.with_id_and_hour:
        rows = np.arange(block.start, block.start + block.rows)
        columns = [_ids(seed, rows), *columns, _hours(rows // spec.rows_per_hour)]
    arrays = {
        column.name: _column_array(column, block.values[column.name], block.present.get(column.name))
        for column in spec.columns
    }
    for name, words in spec.texts:
        parts = [arrays.pop(word) for word in words]
        arrays[name] = pc.binary_join_element_wise(*parts, " ", null_handling="skip")
    names = spec.header.split(",") if spec.header else ["label", *arrays]
    return pa.table([*columns, *arrays.values()], names=names)


def _column_array(column: Column, values: np.ndarray, present: np.ndarray | None) -> pa.Array:
    if isinstance(column, Categorical):
        if column.words:
            return pa.array(column.words).take(pa.array(values, mask=None if present is None else ~present))
        if not column.as_number:
            return _fixed_strings(hex_tokens(hash_values(column.name, values)), present)
        values = column.number_of_rank[values]
    return pa.array(values, mask=None if present is None else ~present)


def _fixed_strings(characters: np.ndarray, present: np.ndarray | None) -> pa.Array:
    """Returns strings of equal length from characters, uint8 `[N, length]`."""
    rows, length = characters.shape
    offsets = np.arange(0, (rows + 1) * length, length, dtype=np.int32)
    valid = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(characters), valid)


def _ids(seed: int, rows: np.ndarray) -> pa.Array:
    """Returns distinct ids of up to 20 digits, like those of the real log, by a bijection of the row number."""
    first = splitmix64(np.array([seed % (1 << 64)], np.uint64))
    return pa.array(splitmix64(rows.astype(np.uint64) + first))


def _hours(hours: np.ndarray) -> pa.Array:
    """Returns hours since _FIRST_HOUR as YYMMDDHH."""
    runs, inverse = np.unique(hours, return_inverse=True)
    text = [str(_FIRST_HOUR + np.timedelta64(int(hour), "h")) for hour in runs]
    texts = pa.array([t[2:4] + t[5:7] + t[8:10] + t[11:13] for t in text])
    return texts.take(pa.array(inverse))


def write_options(spec: LogLayout) -> pyarrow.csv.WriteOptions:
    """Returns the Arrow CSV options of a layout."""
    return pyarrow.csv.WriteOptions(
        include_header=False, delimiter=spec.delimiter, quoting_style="none", batch_size=4096
    )


@contextlib.contextmanager
def open_log(path: pathlib.Path, compress: bool) -> Iterator[BinaryIO]:
    """Opens a binary file for writing, optionally with gzip.

    The gzip header has no name and time. Equal rows therefore give equal bytes.
    """
    with open(path, "wb") as raw:
        if not compress:
            yield raw
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=_GZIP_LEVEL) as zipped:
            yield cast(BinaryIO, zipped)
