"""Checks the values of a raw log, bytes of a text file or Parquet's types, and converts them.

The functions add malformed rows to `faults`, which maps a row to the reason; a row's first reason is kept.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from common.errors import InputError
from transforms.log.lines import is_utf8

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def to_floats(values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    """Returns binary values as float32; null where a value is missing."""
    suspects = _not_of_digits(values)
    if len(suspects) < len(values) // 32:
        bad = _no_numbers(values, suspects)
        numbers = _cast(_null_where(bad, values))
    else:  # converting all values is faster than matching the suspects
        bad = suspects[:0]
        try:
            numbers = _cast(values)
        except pa.ArrowInvalid:
            bad = _no_numbers(values, suspects)
            numbers = _cast(_null_where(bad, values))
    _note_numbers(values, bad, name, faults)
    return _finite(numbers, values, name, faults)


def as_floats(values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    """Returns numbers as float32; null for NaN, which means missing."""
    numbers = values.cast(pa.float32(), safe=False)
    numbers = pc.if_else(pc.is_nan(numbers), pa.scalar(None, pa.float32()), numbers)
    return _finite(numbers, values, name, faults)


def to_labels(values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    """Returns binary values as labels, float32 0 or 1."""
    one = pc.is_in(values, value_set=pa.array([b"1", b"1.0"]))
    zero = pc.is_in(values, value_set=pa.array([b"0", b"0.0"]))
    for row in np.flatnonzero(~pc.or_(one, zero).to_numpy(zero_copy_only=False)).tolist():
        value = values[row].as_py()
        shown = "nothing" if value is None else f"'{value.decode('utf-8', 'replace')}'"
        faults.setdefault(row, f"{name}: the label must be 0 or 1, found {shown}")
    return one.cast(pa.float32())


def check_utf8(values: pa.Array, name: str, faults: dict[int, str]) -> None:
    """Adds rows whose binary value is not valid UTF-8 to `faults`."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        check_utf8_of(range(len(values)), values, name, faults)


def check_utf8_of(rows: Sequence[int], values: pa.Array, name: str, faults: dict[int, str]) -> None:
    """Adds those of the given rows whose binary value is not valid UTF-8 to `faults`."""
    for row in rows:
        if row not in faults and not is_utf8(values[row].as_py() or b""):
            faults[row] = f"{name}: invalid UTF-8"


def as_binary(values: pa.Array, name: str, path: str) -> pa.Array:
    """Returns a Parquet column as the bytes that a text file would have; null for an empty string.

    Raises:
        InputError: the column's type has no single value per row.
    """
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)  # NaN means missing
    try:
        values = values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())
    except pa.ArrowException as error:
        raise InputError(f"{path}: column {name} of type {values.type} cannot be read as a value per row") from error
    empty = pc.equal(pc.binary_length(values), 0).fill_null(False)
    return _null_where(np.flatnonzero(empty.to_numpy(zero_copy_only=False)), values)


def _null_where(rows: np.ndarray, values: pa.Array) -> pa.Array:
    """Returns binary values with null in the given rows."""
    if not len(rows):
        return values
    keep = np.ones(len(values), bool)
    keep[rows] = False
    # if_else corrupts slices of binary arrays (apache/arrow#49410); replace_with_mask takes seven times as long.
    valid = pc.and_(values.is_valid(), pa.array(keep))
    _, offsets, contents = values.buffers()
    buffers = [valid.buffers()[1], offsets.slice(4 * values.offset), contents]
    return pa.Array.from_buffers(values.type, len(values), buffers)


def _cast(values: pa.Array) -> pa.Array:
    """Returns binary values as float32, infinite where a number is too large.

    Raises:
        pa.ArrowInvalid: a value is no number.
    """
    return values.view(pa.string()).cast(pa.float32())


def _not_of_digits(values: pa.Array) -> np.ndarray:
    """Returns the rows whose binary value has bytes other than digits."""
    _, offsets, contents = values.buffers()
    if contents is None:
        return np.empty(0, np.int64)
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    text = np.frombuffer(contents, np.uint8)[ends[0] : ends[-1]]
    positions = ends[0] + np.flatnonzero(text - np.uint8(ord("0")) > 9)  # characters before "0" wrap round
    rows: np.ndarray = np.searchsorted(ends, positions, side="right") - 1
    rows = rows[np.diff(rows, prepend=-1) > 0]
    return rows


def _no_numbers(values: pa.Array, rows: np.ndarray) -> np.ndarray:
    """Returns those of the given rows whose value is no number."""
    if not len(rows):
        return rows
    is_number = pc.match_substring_regex(values.take(pa.array(rows)), f"^(?:{_NUMBER.pattern.decode()})$").fill_null(
        True
    )
    wrong: np.ndarray = rows[~is_number.to_numpy(zero_copy_only=False)]
    return wrong


def _finite(numbers: pa.Array, values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    good = pc.is_finite(numbers)
    if pc.all(good).as_py() is False:  # None where all values are missing
        _note_numbers(values, np.flatnonzero(~good.fill_null(True).to_numpy(zero_copy_only=False)), name, faults)
    return numbers


def _note_numbers(values: pa.Array, rows: np.ndarray, name: str, faults: dict[int, str]) -> None:
    for row in rows.tolist():
        value = values[row].as_py()
        text = value if isinstance(value, bytes) else str(value).encode()
        reason = "is too large for a 32-bit float" if _NUMBER.fullmatch(text) else "is not a number"
        faults.setdefault(row, f"{name}: '{text.decode('utf-8', 'replace')}' {reason}")
