"""Values of a raw log, as the bytes of a text file or as Parquet's types -> numbers, labels and text, or what is wrong.

Each function notes in `faults` what is wrong with a row, unless something was before.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import InputError
from transforms.lines import is_utf8

_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_NO_DIGIT = np.ones(256, bool)
_NO_DIGIT[list(b"0123456789")] = False


def to_floats(values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    """float32 of binary values."""
    try:
        numbers = _cast(values)
    except pa.ArrowInvalid:  # one value spoils them all
        bad = _no_numbers(values)
        _note_numbers(values, bad, name, faults)
        which = np.zeros(len(values), bool)
        which[bad] = True
        numbers = _cast(_null_where(pa.array(which), values))
    return _finite(numbers, values, name, faults)


def as_floats(values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    """float32 of numbers; NaN is a missing one."""
    numbers = values.cast(pa.float32(), safe=False)
    return _finite(_null_where(pc.is_nan(numbers).fill_null(False), numbers), values, name, faults)


def to_labels(values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    """float32 0 or 1 of binary values."""
    one = pc.is_in(values, value_set=pa.array([b"1", b"1.0"]))
    zero = pc.is_in(values, value_set=pa.array([b"0", b"0.0"]))
    for row in np.flatnonzero(~pc.or_(one, zero).to_numpy(zero_copy_only=False)).tolist():
        value = values[row].as_py()
        shown = "nothing" if value is None else f"'{value.decode('utf-8', 'replace')}'"
        faults.setdefault(row, f"{name}: the label must be 0 or 1, found {shown}")
    return one.cast(pa.float32())


def check_utf8(values: pa.Array, name: str, faults: dict[int, str]) -> None:
    """Of all binary values."""
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        check_utf8_of(range(len(values)), values, name, faults)


def check_utf8_of(rows: Sequence[int], values: pa.Array, name: str, faults: dict[int, str]) -> None:
    """Of the binary values of some rows."""
    for row in rows:
        value = values[row].as_py()
        if value is not None and not is_utf8(value):
            faults.setdefault(row, f"{name}: invalid UTF-8")


def as_binary(values: pa.Array, name: str, path: str) -> pa.Array:
    """A Parquet column as the bytes that a text file would hold; an empty string is missing.

    Raises:
        InputError: the column holds no value per row.
    """
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_floating(values.type):
        values = _null_where(pc.is_nan(values).fill_null(False), values)  # NaN is a number that is missing
    try:
        values = values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())
    except pa.ArrowException as error:
        raise InputError(f"{path}: column {name} of type {values.type} cannot be read as a value per row") from error
    return _null_where(pc.equal(pc.binary_length(values), 0).fill_null(False), values)


def _null_where(which: pa.Array, values: pa.Array) -> pa.Array:
    # Not by if_else, which spoils slices of binary arrays (apache/arrow#49410).
    return pc.replace_with_mask(values, which, pa.scalar(None, values.type))


def _cast(values: pa.Array) -> pa.Array:
    """float32; not finite where that is written, or where the number is too large.

    Raises:
        pa.ArrowInvalid: there is a value that is no number.
    """
    return values.view(pa.string()).cast(pa.float32())


def _no_numbers(values: pa.Array) -> np.ndarray:
    """The rows of binary values that are no numbers. Only what does not consist of digits is matched."""
    _, offsets, contents = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    positions = ends[0] + np.flatnonzero(_NO_DIGIT[np.frombuffer(contents, np.uint8)[ends[0] : ends[-1]]])
    rows = np.unique(np.searchsorted(ends, positions, side="right") - 1)
    is_number = pc.match_substring_regex(values.take(pa.array(rows)), f"^(?:{_NUMBER.pattern.decode()})$")
    return rows[~is_number.to_numpy(zero_copy_only=False)]


def _finite(numbers: pa.Array, values: pa.Array, name: str, faults: dict[int, str]) -> pa.Array:
    good = pc.is_finite(numbers)
    if pc.all(good).as_py() is False:  # None: there are only missing values
        _note_numbers(values, np.flatnonzero(~good.fill_null(True).to_numpy(zero_copy_only=False)), name, faults)
    return numbers


def _note_numbers(values: pa.Array, rows: np.ndarray, name: str, faults: dict[int, str]) -> None:
    for row in rows.tolist():
        value = values[row].as_py()
        text = value if isinstance(value, bytes) else str(value).encode()
        reason = "is too large for a 32-bit float" if _NUMBER.fullmatch(text) else "is not a number"
        faults.setdefault(row, f"{name}: '{text.decode('utf-8', 'replace')}' {reason}")
