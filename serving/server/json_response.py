"""Writes tensors as response JSON, byte for byte like TF Serving's json_tensor.cc (contract O1-O9).

orjson writes the numbers. The features it lacks, the number of digits (six, or nine if needed) and the line breaks,
cost 0.005 ms for one row and 0.05 ms for 1,000 rows (`python -m benchmarks.http`).
"""

import base64
import itertools
import math
import re
import struct
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import orjson
import tensorflow as tf

from ctrpipe.serving.server.errors import bad_request
from ctrpipe.serving.server.json_values import json_string
from ctrpipe.serving.server.tensors import dtype_name

_INDENT = b"    "
# Lone surrogates, other than those as which bytes that are not UTF-8 are read.
_NO_BYTES = re.compile("[\ud800-\udc7f\udd00-\udfff]")
# In this range, %g writes six or nine digits without an exponent. The float32 nearest to 0.0001 is slightly below it.
_PLAIN_FROM, _PLAIN_BELOW = float(np.float32(1e-4)), 1e6
_DECADES = 10.0 ** np.arange(-4, 6)
# Factors for each decade that leave six or nine digits before the decimal point. A float32 has 24 bits and a factor at
# most 29: the products are exact in float64, and the shortest text of a quotient has its digits only.
_SIX_DIGITS, _NINE_DIGITS = 10.0 ** np.arange(10, -1, -1), 10.0 ** np.arange(13, 2, -1)
_MOST_CHARACTERS = 256 << 10  # of an error
# Up to so many values, a Python loop is faster than numpy, whose code a graph's run displaces from the caches.
_FEW = 32
_PIECE_VALUES = 1 << 16
_SINGLE = struct.Struct("f")
_INTEGERS = frozenset(map(np.dtype, ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "bool")))


def format_predict(outputs: dict[str, np.ndarray], by_row: bool) -> bytes:
    """Returns the body of a predict response.

    Args:
        outputs: Tensors by alias.
        by_row: Whether the request had `instances`; the response then has one entry per row (O1, O2).

    Raises:
        ServingError: JSON has no form for an output's dtype (O9); by row, the outputs do not share a batch dimension
            (O3).
    """
    arrays = {name: np.asarray(value) for name, value in outputs.items()}
    if not arrays:
        raise bad_request("Cannot convert empty tensor map to JSON")
    if by_row:
        return in_object("predictions", _rows(arrays))
    if len(arrays) == 1:
        [(name, array)] = arrays.items()
        return in_object("outputs", _tensor(name, array, 1))
    members = (_INDENT * 2 + _key(name) + _tensor(name, array, 2) for name, array in arrays.items())
    return in_object("outputs", b"{\n" + b",\n".join(members) + b"\n" + _INDENT + b"}")


def in_object(key: str, value: bytes) -> bytes:
    """Returns an object with one member."""
    return b'{\n    "' + key.encode() + b'": ' + value + b"\n}"


def error_body(message: str | None) -> bytes:
    """Returns an error as JSON; empty without a message.

    Invalid UTF-8 is written unchanged, as TF Serving does. A message of megabytes, which repeats a name from the
    request, is truncated, because writing it holds the GIL.
    """
    if message is None:
        return b""
    text = message if len(message) <= _MOST_CHARACTERS else message[:_MOST_CHARACTERS] + "...TRUNCATED"
    return in_object("error", json_string(_NO_BYTES.sub("\ufffd", text)))


def of_rows(texts: Sequence[bytes]) -> bytes:
    """Returns a list with its elements on one line and its end on the next, like TF Serving's lists of rows."""
    return b"[" + b", ".join(texts) + b"\n" + _INDENT + b"]" if texts else b"[]"


def _rows(arrays: dict[str, np.ndarray]) -> bytes:
    size = _batch_size(arrays)
    if not size:
        return b"[]"
    if len(arrays) == 1:
        [(name, array)] = arrays.items()
        return _line(name, array, 1)[:-1] + b"\n" + _INDENT + b"]"
    members = b",\n".join(_INDENT * 3 + _key(name).replace(b"%", b"%%") + b"%b" for name in arrays)
    row = _INDENT * 2 + b"{\n" + members + b"\n" + _INDENT * 2 + b"}"
    columns = [_items(name, array) for name, array in arrays.items()]
    rows = (row % values for values in zip(*columns, strict=True))
    return b"[\n" + b",\n".join(rows) + b"\n" + _INDENT + b"]"


def _key(name: str) -> bytes:
    return json_string(name) + b": "


def _batch_size(arrays: dict[str, np.ndarray]) -> int:
    size = -1
    for name, array in arrays.items():
        if not array.ndim:
            raise bad_request(f"Tensor name: {name} has no shape information ")
        if size >= 0 and len(array) != size:
            raise bad_request(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {size}")
        size = len(array)
    return size


def _line(name: str, array: np.ndarray, depth: int) -> bytes:
    """Returns a tensor's JSON on one line; `depth` is the number of containers around it."""
    text = _numbers(array)
    if text is not None:
        return text.replace(b",", b", ")
    return _nest(_scalars(name, array, depth + array.ndim), array.shape)


def _tensor(name: str, array: np.ndarray, depth: int) -> bytes:
    """Returns a tensor's JSON with one element per line; `depth` is the number of containers around it."""
    text = _numbers(array)
    if text is None:
        return _nest(_scalars(name, array, depth + array.ndim), array.shape, depth)
    return _spread(text, array.ndim, depth)


def _spread(text: bytes, levels: int, depth: int) -> bytes:
    """Returns nested, non-empty lists of numbers with one number per line."""
    lines = [b"\n" + _INDENT * (depth + level) for level in range(levels + 1)]
    inside = text[levels:-levels]
    for closed in range(levels - 1, 0, -1):
        inside = inside.replace(b"]" * closed + b"," + b"[" * closed, bytes([128 + closed]))
    inside = inside.replace(b",", b"," + lines[-1])
    for closed in range(1, levels):
        inside = inside.replace(bytes([128 + closed]), _ends(lines, closed) + b"," + _starts(lines, closed))
    return b"[" + _starts(lines, levels - 1) + inside + _ends(lines, levels)


def _starts(lines: Sequence[bytes], opened: int) -> bytes:
    """Returns the brackets that open the innermost lists, up to the first number."""
    return b"".join(line + b"[" for line in lines[len(lines) - 1 - opened : -1]) + lines[-1]


def _ends(lines: Sequence[bytes], closed: int) -> bytes:
    """Returns the brackets that close the innermost lists."""
    return b"".join(line + b"]" for line in reversed(lines[len(lines) - 1 - closed : -1]))


def _items(name: str, array: np.ndarray) -> list[bytes]:
    """Returns the JSON of each row of a tensor, on one line, for use inside the row's object."""
    if array.ndim == 1:
        return _scalars(name, array, 3)
    opening, closing = b"[" * (array.ndim - 1), b"]" * (array.ndim - 1)
    text = _numbers(array)
    if text is None:
        texts = _scalars(name, array, 2 + array.ndim)
        size = len(texts) // len(array)
        return [_nest(texts[at * size : (at + 1) * size], array.shape[1:]) for at in range(len(array))]
    inside = text[array.ndim : -array.ndim].split(closing + b"," + opening)
    return [opening + row.replace(b",", b", ") + closing for row in inside]


def _nest(texts: Sequence[bytes], shape: Sequence[int], depth: int | None = None) -> bytes:
    """Joins scalars, in order, into nested lists; with a depth, one element per line."""
    if not shape:
        return texts[0]
    count = len(texts)
    for level in range(len(shape) - 1, -1, -1):
        size, count = shape[level], math.prod(shape[:level])
        comma, start, end = b", ", b"[", b"]"
        if depth is not None and size:
            line = b"\n" + _INDENT * (depth + level)
            comma, start, end = b"," + line + _INDENT, b"[" + line + _INDENT, line + b"]"
        texts = [start + comma.join(texts[at * size : (at + 1) * size]) + end for at in range(count)]
    return texts[0]


def _numbers(array: np.ndarray) -> bytes | None:
    """Returns a numeric tensor's JSON without white space.

    Returns None for scalars, empty tensors, up to _FEW floats, and other dtypes.
    """
    if array.dtype in _INTEGERS:
        return _text(array) if array.ndim and array.size else None
    if array.size <= _FEW:
        return None
    if array.dtype == np.float32:
        return _in_pieces(array, _float_text)
    if array.dtype == np.float64:
        return _in_pieces(array, _double_text)
    return None


def _in_pieces(array: np.ndarray, write: Callable[[np.ndarray], bytes]) -> bytes:
    """Writes the JSON in pieces of some rows, because a value takes 100 times its size while it is written."""
    rows = max(1, _PIECE_VALUES * len(array) // array.size)
    if rows >= len(array):
        return write(array)
    return b"[" + b",".join([write(array[at : at + rows])[1:-1] for at in range(0, len(array), rows)]) + b"]"


def _double_text(array: np.ndarray) -> bytes:
    """Returns the JSON of float64 values without white space."""
    return _filled(_text(np.full(array.shape, np.nan)), map(_double, array.reshape(-1).tolist()))


def _scalars(name: str, array: np.ndarray, depth: int) -> list[bytes]:
    """Returns the values in order; `depth` is the number of containers around each."""
    if not array.size:  # empty outputs of any dtype are allowed (O9)
        return []
    if array.dtype in (np.float32, np.float64):
        return decimals(array)
    if array.dtype in _INTEGERS:
        return _text(array.reshape(-1))[1:-1].split(b",")
    if array.dtype.kind in "OSU":
        values = array.reshape(-1).tolist()
        if name.endswith("_bytes"):
            return [_bytes_object(value, depth) for value in values]
        return list(map(json_string, values))
    raise bad_request(f"Failed to write JSON value for tensor type: {dtype_name(tf.as_dtype(array.dtype))}")


def _text(array: np.ndarray) -> bytes:
    return orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)


def decimals(array: np.ndarray) -> list[bytes]:
    """Returns the texts of float32 or float64 values, in order (O5)."""
    flat = array.reshape(-1)
    if array.dtype != np.float32:
        return list(map(_double, flat.tolist()))
    if array.size <= _FEW:
        return list(map(_single, flat.tolist()))
    return _in_pieces(flat, _float_text)[1:-1].split(b",")


def _float_text(array: np.ndarray) -> bytes:
    """Returns the JSON of float32 values without white space.

    A plain value is converted to the float64 whose shortest text is the text that TF Serving prints. Other values
    become NaN, which orjson prints as null, and the nulls are filled in afterwards.
    """
    with np.errstate(invalid="ignore"):
        wide = array.astype(np.float64)
    size = np.abs(wide)
    decade = _DECADES.searchsorted(size, "right")
    six, nine = _SIX_DIGITS[decade], _NINE_DIGITS[decade]
    with np.errstate(invalid="ignore", over="ignore"):  # only in values that are filled in below
        short = np.rint(wide * six) / six
        plain = np.where(short.astype(np.float32) == array, short, np.rint(wide * nine) / nine)
    if size.min() >= _PLAIN_FROM and size.max() < _PLAIN_BELOW:
        return _text(plain)
    unusual = ~((size >= _PLAIN_FROM) & (size < _PLAIN_BELOW) | (size == 0))
    plain[unusual] = np.nan
    return _filled(_text(plain), map(_single, array[unusual].tolist()))


def _filled(text: bytes, texts: Iterable[bytes]) -> bytes:
    """Returns JSON with its nulls replaced by the texts, in order."""
    first, *rest = text.split(b"null")
    return b"".join((first, *itertools.chain.from_iterable(zip(texts, rest, strict=True))))


def _single(value: float) -> bytes:
    """Returns a float32 as TF Serving prints it: six digits if they read back as the same value, otherwise nine."""
    text = b"%.6g" % value
    try:
        is_exact = _SINGLE.unpack(_SINGLE.pack(float(text)))[0] == value
    except OverflowError:  # rounded up, the largest values exceed float32
        is_exact = False
    return _finished(text if is_exact else b"%.9g" % value)


def _double(value: float) -> bytes:
    """Returns a float64 as TF Serving prints it: six digits if they read back as the same value, otherwise 17."""
    text = b"%.6g" % value
    return _finished(text if float(text) == value else b"%.17g" % value)


def _finished(text: bytes) -> bytes:
    if text.endswith(b"n"):
        return b"NaN"
    if text.endswith(b"f"):
        return text.replace(b"inf", b"Infinity")
    return text if b"." in text or b"e" in text else text + b".0"


def _bytes_object(value: bytes | str, depth: int) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    line = b"\n" + _INDENT * depth
    return b"{" + line + _INDENT + b'"b64": "' + base64.b64encode(raw) + b'"' + line + b"}"
