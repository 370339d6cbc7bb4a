"""Checks and converts the vectors of a raw log: Parquet lists, or text with a separator.

A checked vector is one value of Arrow's type `fixed_size_binary[4 * length]`: float32, little endian; null if it is
missing. A column of vectors can therefore be read, shuffled, counted and written like any other column.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.payload import plain
from ctrpipe.transforms.log.values import TextNumbers, is_list, to_floats

Floats = npt.NDArray[np.float32]
_LARGEST = np.float32(np.finfo(np.float32).max)
_SPACES = r"\s+"


def vector_type(length: int) -> pa.DataType:
    """Returns the type of a column of checked vectors."""
    return pa.binary(4 * length)


def is_vector(kind: pa.DataType) -> bool:
    """Returns whether a type of the payload is a vector's."""
    return bool(pa.types.is_fixed_size_binary(kind))


def as_lists(values: pa.Array) -> pa.Array:
    """Returns checked vectors as lists of float32; null where a vector is missing."""
    length = values.type.byte_width // 4
    ends = np.cumsum(np.append(0, values.is_valid().to_numpy(zero_copy_only=False) * length)).astype(np.int32)
    known = vector_array(values.drop_null())
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(pa.array(ends), pa.array(known.reshape(-1)), mask=mask)


def vector_array(values: pa.Array | pa.ChunkedArray) -> Floats:
    """Returns checked vectors as float32 [N, length]; a row of NaN where a vector is missing."""
    if isinstance(values, pa.ChunkedArray):
        chunks = [vector_array(chunk) for chunk in values.chunks]
        return np.concatenate([np.empty((0, values.type.byte_width // 4), np.float32), *chunks])
    length = values.type.byte_width // 4
    _, contents = values.buffers()
    flat = np.frombuffer(contents or b"", "<f4", len(values) * length, values.offset * 4 * length)
    vectors = flat.reshape(len(values), length)
    if values.null_count:
        vectors = np.where(values.is_valid().to_numpy(zero_copy_only=False)[:, None], vectors, np.float32("nan"))
    return vectors


def from_array(vectors: Floats, known: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Returns float32 [N, length] as a column of checked vectors, null where `known` is False."""
    if known is None:
        known = np.logical_not(np.isnan(vectors).all(axis=1))
    validity = None if known.all() else pa.array(known).buffers()[1]
    contents = pa.py_buffer(np.ascontiguousarray(vectors, "<f4"))
    return pa.FixedSizeBinaryArray.from_buffers(vector_type(vectors.shape[1]), len(vectors), [validity, contents])


def to_vectors(values: pa.Array, name: str, faults: dict[int, str], feature: Vector, written: TextNumbers) -> pa.Array:
    """Returns a column as checked vectors.

    Args:
        values: Lists of numbers, or binary text.
        name: The column.
        faults: Gets the rows whose vector has another length or an element that is not a finite number.
        feature: The description of the vectors.
        written: How the log writes numbers. With `infinite`, an infinite element is clipped.
    """
    lists = values if is_list(values.type) else _split(values, feature, written)
    lengths = pc.list_value_length(lists).fill_null(0).to_numpy(zero_copy_only=False)
    flat = plain(pc.list_flatten(lists))
    parents = np.repeat(np.arange(len(lists)), lengths)
    numbers, wrong = _numbers(flat, name, written)
    for row in np.flatnonzero((lengths != feature.length) & (lengths > 0)).tolist():
        faults.setdefault(row, f"{name}: a vector has {feature.length} numbers, found {lengths[row]}")
    for element, fault in wrong.items():
        faults.setdefault(int(parents[element]), fault)
    whole = lengths == feature.length
    of_whole = numbers[whole[parents]]
    vectors = np.zeros((len(lists), feature.length), np.float32)
    vectors[whole] = of_whole.reshape(-1, feature.length)
    known = whole & ~np.isnan(vectors).all(axis=1)
    for row in np.flatnonzero(known & np.isnan(vectors).any(axis=1)).tolist():
        place = 1 + int(np.flatnonzero(np.isnan(vectors[row]))[0])
        faults.setdefault(row, f"{name}: element {place} of the vector is missing; a vector is whole or missing")
    return from_array(vectors, known)


def _split(values: pa.Array, feature: Vector, written: TextNumbers) -> pa.Array:
    """Splits text into lists of binary elements; null for a missing value and for an empty list."""
    words = [word.decode() for word in written.missing]
    texts = pc.replace_substring_regex(values.view(pa.string()), r"^\s*\[?\s*|\s*\]?\s*$", "")
    absent = pc.or_(pc.equal(texts, ""), pc.is_in(texts, value_set=pa.array(words, pa.string())))
    texts = pc.if_else(absent, pa.scalar(None, pa.string()), texts)
    if feature.separator == " ":
        return pc.split_pattern_regex(texts, _SPACES)
    return pc.split_pattern(texts, feature.separator)


def _numbers(flat: pa.Array, name: str, written: TextNumbers) -> tuple[Floats, dict[int, str]]:
    """Returns elements as float32, NaN for a missing one, and the faults by element index."""
    wrong: dict[int, str] = {}
    if pa.types.is_string(flat.type) or pa.types.is_binary(flat.type) or pa.types.is_large_string(flat.type):
        texts = pc.ascii_trim_whitespace(flat.cast(pa.string()) if not pa.types.is_string(flat.type) else flat)
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        numbers = to_floats(texts.view(pa.binary()), name, wrong, written)
        return numbers.fill_null(float("nan")).to_numpy(zero_copy_only=False), wrong
    if not (pa.types.is_integer(flat.type) or pa.types.is_floating(flat.type) or pa.types.is_decimal(flat.type)):
        fault = f"{name}: a vector of type {flat.type} has no numbers"
        return np.full(len(flat), np.nan, np.float32), dict.fromkeys(range(len(flat)), fault)
    floats = flat.cast(pa.float64()).fill_null(float("nan")).to_numpy(zero_copy_only=False)
    with np.errstate(over="ignore"):
        narrowed: Floats = floats.astype(np.float32)
    infinite = np.isinf(narrowed)
    if infinite.any():
        if written.infinite:
            narrowed = np.where(infinite, np.copysign(_LARGEST, narrowed), narrowed).astype(np.float32)
        else:
            for place in np.flatnonzero(infinite).tolist():
                shown = excerpt(f"{floats[place]:g}".encode())
                wrong[place] = f"{name}: '{shown}' in a vector is not finite, or too large for a 32-bit float"
    return narrowed, wrong
