"""Reads JSON values as tensors, by the rules of TF Serving's json_tensor.cc (contract P5-P20).

A request is first read in bulk, without a Python loop over the numbers. If that fails, it is read again value by value,
to find the error that TF Serving would report first.
"""

import binascii
import itertools
import math
import operator
import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.core.framework import types_pb2

from ctrpipe.serving.server.body_cost import CHECK_EVERY, Reading
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.json_values import Members, json_type, members, shown

_INT32 = (-(2**31), 2**31 - 1)
# The allowed range of JSON integers (P16). Types narrower than int32 wrap, like C++ casts.
_INTEGER_LIMITS = {
    tf.int8: _INT32,
    tf.int16: _INT32,
    tf.int32: _INT32,
    tf.uint8: _INT32,
    tf.int64: (-(2**63), 2**63 - 1),
    tf.uint32: (0, 2**32 - 1),
    tf.uint64: (0, 2**64 - 1),
}
_FLOATS = (tf.float32, tf.float64)
# TF Serving's threads of REST take a subnormal number for zero (P15). The processor compares what it has rounded to 24
# bits: half of the last one below the smallest normal float rounds up to it.
_NORMAL_FROM = {tf.float32: 2.0**-126 - 2.0**-151, tf.float64: 2.0**-1022}
# struct packs a list of numbers three times as fast as numpy, and refuses other types and integers out of range.
_PACKED = {
    tf.int8: ("i", np.int32),
    tf.int16: ("i", np.int32),
    tf.int32: ("i", np.int32),
    tf.uint8: ("i", np.int32),
    tf.int64: ("q", np.int64),
    tf.uint32: ("I", np.uint32),
    tf.uint64: ("Q", np.uint64),
    tf.float32: ("f", np.float32),
    tf.float64: ("d", np.float64),
}
_NESTED = (list, dict)  # a vector, and base64
# Up to so many rows, a column's own array takes longer than its values.
_FEW_ROWS = 128
MAX_DIMENSIONS = 63  # numpy's limit is 64; the batch takes one dimension
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_PADDING, _SPACE = b"=.", b" \t\n\v\f\r"
Dtypes = dict[str, tf.DType]


class _Unexpected(Exception):
    """Raised if the bulk reader cannot read a value. The value-by-value reader then reads or refuses it."""


class Kinds(NamedTuple):
    """The special values that a request may contain and that need a check.

    Attributes:
        booleans: False if the request is known to hold no true or false. Otherwise every value is checked, because
            Python's booleans are integers.
        tiny: False if the request is known to hold no subnormal numbers.
    """

    booleans: bool = True
    tiny: bool = True


_ANY = Kinds()


def parse_predict(
    body: dict[str, Any], dtypes: Dtypes, kinds: Kinds = _ANY, reading: Reading | None = None
) -> tuple[dict[str, np.ndarray], bool]:
    """Returns the inputs of a predict request, and whether it was in row format.

    Args:
        body: The request's top-level object.
        dtypes: The dtypes of the signature's inputs, at least one.
        kinds: What the request may hold.
        reading: Limits of time and memory.

    Raises:
        ServingError: the request is malformed, or does not fit the signature (P1, P5-P20).
    """
    if "instances" in body:
        if "inputs" in body:
            raise _malformed(
                body, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
            )
        instances = body["instances"]
        if not isinstance(instances, list):
            raise _malformed(body, "Expecting 'instances' to be an list/array")
        if not instances:
            raise _malformed(body, "No values in 'instances' array")
        try:
            return _rows_in_bulk(instances, dtypes, kinds), True
        except _Unexpected:
            return _rows(instances, dtypes, reading or Reading()), True
    if "inputs" in body:
        return _columns(body["inputs"], dtypes, kinds, reading or Reading()), False
    raise bad_request("Missing 'inputs' or 'instances' key")


def _malformed(body: dict[str, Any], reason: str) -> ServingError:
    return bad_request(f"JSON Value: {shown(body)} {reason}")


# In bulk -------------------------------------------------------------------------------------------------------------


def _rows_in_bulk(instances: list[Any], dtypes: Dtypes, kinds: Kinds) -> dict[str, np.ndarray]:
    if not _is_named(instances[0]):
        if len(dtypes) > 1:
            raise _Unexpected()
        [(name, dtype)] = dtypes.items()
        return {name: _bulk(instances, dtype, kinds)}
    if set(map(type, instances)) != {dict} or set(map(len, instances)) != {len(dtypes)}:
        raise _Unexpected()
    try:
        if len(dtypes) == 1:
            [(name, dtype)] = dtypes.items()
            return {name: _bulk([row[name] for row in instances], dtype, kinds)}
        columns = zip(dtypes, zip(*map(operator.itemgetter(*dtypes), instances), strict=True), strict=True)
    except KeyError:
        raise _Unexpected() from None
    if len(instances) <= _FEW_ROWS:
        return _few_rows_in_bulk(dict(columns), dtypes, kinds)
    return {name: _bulk(column, dtypes[name], kinds) for name, column in columns}


def _few_rows_in_bulk(columns: Mapping[str, Sequence[Any]], dtypes: Dtypes, kinds: Kinds) -> dict[str, np.ndarray]:
    """Reads the columns of one dtype as a matrix, [columns, rows], and returns its rows. Reads vectors one by one."""
    arrays: dict[str, np.ndarray] = {}
    names_by_dtype: dict[int, list[str]] = {}  # by id, because the hash of a dtype is a call of C++
    for name, column in columns.items():
        if type(column[0]) in _NESTED:
            arrays[name] = _bulk(column, dtypes[name], kinds)
        else:
            names_by_dtype.setdefault(id(dtypes[name]), []).append(name)
    for names in names_by_dtype.values():
        values = list(itertools.chain.from_iterable([columns[name] for name in names]))
        arrays.update(zip(names, _flat(values, dtypes[names[0]], kinds).reshape(len(names), -1), strict=True))
    return arrays


def _bulk(values: Sequence[Any], dtype: tf.DType, kinds: Kinds) -> np.ndarray:
    """Reads a list, nested or not, as a tensor."""
    shape, level = [len(values)], values
    while level and type(level[0]) is list:
        if set(map(type, level)) != {list}:
            raise _Unexpected()
        sizes = set(map(len, level))
        if len(sizes) != 1:
            raise _Unexpected()
        shape += sizes
        level = list(itertools.chain.from_iterable(level))
        if len(shape) > MAX_DIMENSIONS:
            raise _Unexpected()
    return _flat(level, dtype, kinds).reshape(shape)


def _flat(values: Sequence[Any], dtype: tf.DType, kinds: Kinds) -> np.ndarray:
    """Returns a list of scalars as a vector."""
    if dtype is tf.string:
        return _strings(values)
    if dtype is tf.bool:
        if not set(map(type, values)) <= {bool}:
            raise _Unexpected()
        return np.array(values, bool)
    code, packed = _PACKED.get(dtype, (None, None))
    if code is None or (kinds.booleans and bool in set(map(type, values))):
        raise _Unexpected()
    try:
        array = np.frombuffer(struct.pack(f"{len(values)}{code}", *values), packed)
    except (struct.error, OverflowError):
        raise _Unexpected() from None
    if kinds.tiny and dtype in _FLOATS:
        array = _without_subnormals(array, values, dtype)
    return _cast(array, dtype)


def _without_subnormals(array: np.ndarray, values: Sequence[float], dtype: tf.DType) -> np.ndarray:
    """Replaces subnormal numbers by zeros with the same sign."""
    exact = np.array(values, np.float64)
    return np.where(np.abs(exact) < _NORMAL_FROM[dtype], np.copysign(array.dtype.type(0), array), array)


def _strings(values: Sequence[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    try:
        if values and type(values[0]) is dict:
            if set(map(type, values)) != {dict} or set(map(len, values)) != {1}:
                raise _Unexpected()
            array[:] = [_usual_base64(value["b64"]) for value in values]
        else:
            array[:] = list(map(str.encode, values))
    except (TypeError, KeyError, ValueError):  # another type, no key b64, lone surrogates, bad base64
        raise _Unexpected() from None
    return array


def _usual_base64(text: str) -> bytes:
    raw = binascii.a2b_base64(text, strict_mode=True)
    if len(text) != (len(raw) + 2) // 3 * 4:  # a2b_base64 accepts too much padding
        raise ValueError(text)
    return raw


def _cast(array: np.ndarray, dtype: tf.DType) -> np.ndarray:
    if array.dtype == dtype.as_numpy_dtype:
        return array
    with np.errstate(over="ignore"):  # a double beyond float's range is an infinity (P15)
        return array.astype(dtype.as_numpy_dtype)


# Value by value ------------------------------------------------------------------------------------------------------


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and not is_base64(value)


def is_base64(value: object) -> bool:
    """Returns whether a value is an object whose only member is b64, a string."""
    if not isinstance(value, dict) or isinstance(value, Members):
        return False
    return list(value) == ["b64"] and isinstance(value["b64"], str)


def _rows(instances: list[Any], dtypes: Dtypes, reading: Reading) -> dict[str, np.ndarray]:
    named = _is_named(instances[0])
    if not isinstance(instances[0], dict) and len(dtypes) > 1:
        raise bad_request(
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map"
        )
    parts: dict[str, list[np.ndarray]] = {name: [] for name in dtypes}
    for index, row in enumerate(instances):
        if not index % CHECK_EVERY:
            reading.check_time()
            reading.check_single_rows(index * len(dtypes))
        if named != _is_named(row):
            what = ("object", "list") if named else ("value/list", "object")
            raise bad_request(f"Expecting {what[0]} but got {what[1]} at item {index} of input list")
        # As a C string, a name ends at a NUL.
        pairs = (
            [(name.partition("\0")[0], value) for name, value in members(row)] if named else [(next(iter(dtypes)), row)]
        )
        for name, value in pairs:
            key = f" key: {name}" if named else ""
            try:
                _add(parts, name, value, dtypes, reading)
            except ServingError as error:
                raise bad_request(
                    f"Failed to process element: {index}{key} of 'instances' list. Error: {error.code}: {error.message}"
                ) from error
        if named and {name for name, _ in pairs} != dtypes.keys():
            raise bad_request(
                f"Failed to process element: {index} of 'instances' list. JSON object: {shown(row)} "
                f"keys must be equal to: {','.join(sorted(dtypes))}"
            )
    if not named and len(dtypes) > 1:  # base64 objects count as plain values
        raise bad_request(f"input size does not match signature: 1!={len(dtypes)}")
    # If a row repeats an input, both values count, and the values of later rows move (J13).
    return {name: np.stack(values[: len(instances)]) for name, values in parts.items()}


def _add(parts: dict[str, list[np.ndarray]], name: str, value: object, dtypes: Dtypes, reading: Reading) -> None:
    if name not in dtypes:
        raise bad_request(f"JSON object: does not have named input: {name}")
    part = to_tensor(value, dtypes[name], reading=reading)
    parts[name].append(part)
    first = parts[name][0]
    if part.size != first.size:
        raise bad_request(f"Expecting tensor size: {first.size} but got: {part.size}")
    if part.shape != first.shape:
        raise bad_request(f"Expecting shape {_shape_text(first)} but got: {_shape_text(part)}")


def _shape_text(array: np.ndarray) -> str:
    return f"[{','.join(map(str, array.shape))}]"


def _columns(inputs: Any, dtypes: Dtypes, kinds: Kinds, reading: Reading) -> dict[str, np.ndarray]:
    if not _is_named(inputs):
        if len(dtypes) > 1:
            raise bad_request(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        inputs = {next(iter(dtypes)): inputs}
    tensors = {}
    for name, dtype in dtypes.items():
        if name not in inputs:
            raise bad_request(f"Missing named input: {name} in 'inputs' object.")
        tensors[name] = to_tensor(inputs[name], dtype, kinds, reading)
    return tensors


def to_tensor(value: object, dtype: tf.DType, kinds: Kinds = _ANY, reading: Reading | None = None) -> np.ndarray:
    """Returns a JSON scalar or nested list as a tensor. Raises ServingError (P15-P20)."""
    if isinstance(value, list):
        try:
            return _bulk(value, dtype, kinds)
        except _Unexpected:
            pass
    shape = _shape(value)
    if len(shape) > MAX_DIMENSIONS:
        raise bad_request(f"Lists are nested in {len(shape)} levels; a tensor has at most {MAX_DIMENSIONS} dimensions")
    flat = _leaves(value, dtype, shape, reading or Reading())
    if dtype == tf.string:
        array = np.empty(len(flat), object)
        array[:] = flat
    elif dtype == tf.bool or not flat:
        array = np.array(flat, dtype.as_numpy_dtype)
    else:
        array = _cast(np.array(flat, np.float64 if dtype in _FLOATS else _PACKED[dtype][1]), dtype)
    return array.reshape(shape)


def _shape(value: object) -> list[int]:
    """Returns the shape, by the first element of each level, as in TF Serving."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return shape


def _leaves(value: object, dtype: tf.DType, shape: Sequence[int], reading: Reading) -> list[Any]:
    """Returns all scalars in order. Does not recurse, because a body may be nested deeply."""
    flat: list[Any] = []
    rank = len(shape)
    stack = [iter([value])]
    while stack:
        level = len(stack) - 1
        try:
            item = next(stack[-1])
        except StopIteration:
            stack.pop()
            continue
        if isinstance(item, list):
            if level >= rank:
                raise bad_request(f"Encountered list at unexpected level: {level} expected < {rank}")
            if len(item) != shape[level]:
                raise bad_request(
                    f"Encountered list at unexpected size: {len(item)} at level: {level} expected size: {shape[level]}"
                )
            stack.append(iter(item))
            continue
        if level != rank:
            raise bad_request(
                f"JSON Value: {shown(item)} found at incorrect level: {level + 1} in the JSON DOM. "
                f"Expected at level: {rank}"
            )
        flat.append(_scalar(item, dtype))
        if not len(flat) % CHECK_EVERY:
            reading.check_time()
    return flat


def _scalar(value: Any, dtype: tf.DType) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, dict):
        if dtype == tf.string:
            return _base64(value)
    elif dtype in _FLOATS:
        if is_number:
            return flushed(float(value), dtype)
    elif dtype in _INTEGER_LIMITS:
        low, high = _INTEGER_LIMITS[dtype]
        if is_number and isinstance(value, int) and low <= value <= high:
            return value
    elif dtype == tf.bool:
        if isinstance(value, bool):
            return value
    elif dtype == tf.string:
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape")
    else:
        raise ServingError("UNIMPLEMENTED", f"Conversion of JSON Value: {shown(value)} to type: {dtype_name(dtype)}")
    name = dtype_name(dtype)
    raise bad_request(f"JSON Value: {shown(value)} Type: {json_type(value)} is not of expected type: {name}")


def flushed(value: float, dtype: tf.DType = tf.float32) -> float:
    """Returns a number of this type; zero with its sign if it is subnormal (P15)."""
    return math.copysign(0.0, value) if abs(value) < _NORMAL_FROM[dtype] else value


def dtype_name(dtype: tf.DType) -> str:
    """Returns the dtype's name as C++ prints it: float, double, half, int32."""
    return str(types_pb2.DataType.Name(dtype.as_datatype_enum)).removeprefix("DT_").lower()


def _base64(value: dict[str, Any]) -> bytes:
    if not is_base64(value):
        raise bad_request(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
    return decode_base64(value["b64"])


def decode_base64(text: str) -> bytes:
    """Decodes base64 as Abseil does.

    White space is ignored. Padding is complete or left out, and may consist of dots.

    Raises:
        ServingError: the text is not base64 (P18).
    """
    # By bytes.translate: to search megabytes by a regular expression keeps the interpreter for a third of a second.
    plain = text.encode("utf-8", "surrogatepass").translate(None, _SPACE)
    digits = plain.rstrip(_PADDING)
    missing, padding = -len(digits) % 4, len(plain) - len(digits)
    if missing == 3 or padding not in (0, missing) or digits.translate(None, _BASE64):
        raise bad_request("Unable to base64 decode")
    return binascii.a2b_base64(digits + b"=" * missing)
