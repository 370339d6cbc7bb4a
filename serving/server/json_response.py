"""Tensors -> the JSON of a predict response, by the rules of TF Serving's json_tensor.cc (contract O1-O9)."""

import base64
import json
import re
from collections.abc import Sequence

import numpy as np
import orjson
import tensorflow as tf

from serving.server.errors import bad_request
from serving.server.tensors import dtype_name

# Between these the shortest text has no exponent, neither here nor in TF Serving.
_PLAIN_FROM, _PLAIN_BELOW = 1e-4, 1e6
_FEW = 16
_MAX_DIGITS = {4: 9, 8: 17}
_CONTROL = re.compile(rb'["\\\x00-\x1f]')


def format_predict(outputs: dict[str, np.ndarray], by_row: bool) -> bytes:
    """Returns the response's body.

    Args:
        outputs: Tensors by alias.
        by_row: The request had `instances`: the answer has one entry a row (O1, O2).

    Raises:
        ServingError: a type that JSON cannot hold (O9); by row, tensors without one batch dimension (O3).
    """
    arrays = {name: np.asarray(value) for name, value in outputs.items()}
    if not by_row:
        if len(arrays) == 1:
            [(name, array)] = arrays.items()
            return pretty("outputs", _tensor(name, array))
        members = (_key(name) + _tensor(name, array) for name, array in arrays.items())
        return pretty("outputs", b"{" + b",".join(members) + b"}")
    size = _batch_size(arrays)
    if len(arrays) == 1:
        [(name, array)] = arrays.items()
        return pretty("predictions", _tensor(name, array))
    columns = [[_key(name) + text for text in _items(name, array)] for name, array in arrays.items()]
    rows = (b"{" + b",".join(row) + b"}" for row in zip(*columns, strict=True)) if size else ()
    return pretty("predictions", b"[" + b",".join(rows) + b"]")


def pretty(key: str, value: bytes) -> bytes:
    """Returns an object of one member, laid out as TF Serving's."""
    return b'{\n    "' + key.encode() + b'": ' + value + b"\n}"


def _key(name: str) -> bytes:
    return json.dumps(name, ensure_ascii=False).encode() + b": "


def _batch_size(arrays: dict[str, np.ndarray]) -> int:
    size = -1
    for name, array in arrays.items():
        if not array.ndim:
            raise bad_request(f"Tensor name: {name} has no shape information ")
        if size >= 0 and len(array) != size:
            raise bad_request(f"Tensor name: {name} has inconsistent batch size: {len(array)} expecting: {size}")
        size = len(array)
    return size


def _tensor(name: str, array: np.ndarray) -> bytes:
    """Returns the JSON of a whole tensor."""
    if array.ndim and (array.dtype.kind in "iub" or array.dtype.kind == "f" and _is_plain(array)):
        return orjson.dumps(np.ascontiguousarray(array), option=orjson.OPT_SERIALIZE_NUMPY)
    return _nest(_scalars(name, array), array.shape)


def _items(name: str, array: np.ndarray) -> list[bytes]:
    """Returns the JSON of each row."""
    texts = _scalars(name, array)
    if array.ndim == 1:
        return texts
    size = len(texts) // len(array) if len(array) else 0
    return [_nest(texts[at * size : (at + 1) * size], array.shape[1:]) for at in range(len(array))]


def _nest(texts: Sequence[bytes], shape: Sequence[int]) -> bytes:
    """Joins scalars in order to nested lists."""
    if not shape:
        return texts[0]
    for size in reversed(shape[1:]):
        count = len(texts) // size if size else int(np.prod(shape[:-1]))
        texts = [b"[" + b",".join(texts[at * size : (at + 1) * size]) + b"]" for at in range(count)]
        shape = shape[:-1]
    return b"[" + b",".join(texts) + b"]"


def _scalars(name: str, array: np.ndarray) -> list[bytes]:
    kind = array.dtype.kind
    if kind == "f" and array.dtype.itemsize in _MAX_DIGITS:
        return decimals(array)
    if kind in "iub":
        return _split(array)
    if kind in "OSU":
        write = _bytes_object if name.endswith("_bytes") else json_string
        return [write(value) for value in array.reshape(-1).tolist()]
    raise bad_request(f"Failed to write JSON value for tensor type: {dtype_name(tf.as_dtype(array.dtype))}")


def _split(array: np.ndarray) -> list[bytes]:
    flat = np.ascontiguousarray(array).reshape(-1)
    return orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1].split(b",") if flat.size else []


def _unusual(array: np.ndarray) -> np.ndarray:
    """Returns where the text has an exponent, or is no number."""
    size = np.abs(array)
    return np.asarray(~((size >= _PLAIN_FROM) & (size < _PLAIN_BELOW) | (size == 0)))


def _is_plain(array: np.ndarray) -> bool:
    if array.dtype.itemsize not in _MAX_DIGITS:
        return False
    # The fast ways for probabilities: for a few values Python, as numpy's calls cost more; for many, two passes.
    if array.size <= _FEW:
        return all(_PLAIN_FROM <= abs(value) < _PLAIN_BELOW or not value for value in array.reshape(-1).tolist())
    if array.min() >= _PLAIN_FROM and array.max() < _PLAIN_BELOW:
        return True
    return not _unusual(array).any()


def decimals(array: np.ndarray) -> list[bytes]:
    """Returns float32 or float64 values in order, each the shortest text that reads back as the same value (O5)."""
    flat = array.reshape(-1)
    texts = _split(flat)
    for at in np.flatnonzero(_unusual(flat)):
        texts[at] = _decimal(flat[at])
    return texts


def _decimal(value: np.floating) -> bytes:
    """Returns the value as C's %g does with the digits that it needs: six, or else the most that its type has."""
    if np.isnan(value):
        return b"NaN"
    if np.isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    text = np.format_float_scientific(value, unique=True, trim="-", exp_digits=2)
    digits, exponent = text.lstrip("-").split("e")
    precision = 6 if len(digits.replace(".", "")) <= 6 else _MAX_DIGITS[value.dtype.itemsize]
    if -4 <= int(exponent) < precision:
        return np.format_float_positional(value, unique=True, trim="0").encode()
    return text.encode()


def _bytes_object(value: bytes | str) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return b'{"b64": "' + base64.b64encode(raw) + b'"}'


def json_string(value: bytes | str) -> bytes:
    """Returns a string as it is: TF Serving does not check that it is UTF-8 (O6)."""
    raw = value.encode() if isinstance(value, str) else value
    return b'"' + _CONTROL.sub(_escape, raw) + b'"'


def _escape(character: re.Match[bytes]) -> bytes:
    return json.dumps(character.group().decode("ascii"))[1:-1].encode()
