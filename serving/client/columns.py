"""Converts lists, numpy and Arrow arrays to request tensors, and JSON responses to arrays."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import orjson
import pyarrow as pa

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.transforms.log.raw_arrays import number_array, text_array
from ctrpipe.transforms.log.values import is_list

Column: TypeAlias = Sequence[Any] | np.ndarray | pa.Array | pa.ChunkedArray
Inputs: TypeAlias = Mapping[str, Column] | pa.RecordBatch | pa.Table


def to_arrays(inputs: Inputs, none_is_nan: bool = False) -> dict[str, np.ndarray]:
    """Returns one array per input: float32 [N], or [N, length] for vectors, or bytes objects [N].

    A missing value is None or null in the inputs, and NaN or b"" in the arrays. Lists and Arrow arrays of numbers
    become float32, the dtype of the columns of `serving_raw`. Numpy arrays keep their dtype, except that floats become
    float32 and text becomes bytes.

    Args:
        inputs: The columns by name.
        none_is_nan: Whether a column that contains only None becomes NaN. By default it is an error, because its type
            is unknown. For callers that know the types of the inputs.

    Raises:
        InputError: a column contains neither numbers nor text, or both, or only None.
    """
    if isinstance(inputs, pa.RecordBatch | pa.Table):
        inputs = dict(zip(inputs.schema.names, inputs.columns, strict=True))
    arrays: dict[str, np.ndarray] = {}
    for name, values in inputs.items():
        try:
            arrays[name] = _array(values, none_is_nan)
        except (TypeError, ValueError, OverflowError) as error:
            raise InputError(f"column '{name}': {one_line(error, 200)}") from error
    return arrays


def _array(values: Column, none_is_nan: bool) -> np.ndarray:
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, pa.Array):
        return _from_arrow(values, none_is_nan)
    if not isinstance(values, np.ndarray):
        return _from_list(values, none_is_nan)
    if values.dtype.kind == "f":
        return values.astype(np.float32, copy=False)
    if values.dtype.kind in "iub":
        return values
    if values.dtype.kind in "SU":
        return np.array([_bytes(value) for value in values.tolist()], object)
    if values.dtype != object:
        raise ValueError(f"{values.dtype} is not a type that a server accepts")
    items = values.tolist()
    return values if set(map(type, items)) <= {bytes} else _from_list(items, none_is_nan)


def _from_arrow(values: pa.Array, none_is_nan: bool) -> np.ndarray:
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if pa.types.is_null(kind):
        return _from_list(values.to_pylist(), none_is_nan)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        values, kind = values.cast(pa.string()).cast(pa.binary()), pa.binary()
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return text_array(values)
    if is_list(kind):
        return _from_list(values.to_pylist(), none_is_nan)
    return number_array(values.cast(pa.float32(), safe=False))


def _from_list(values: Sequence[object], none_is_nan: bool) -> np.ndarray:
    kinds = set(map(type, values))
    if any(issubclass(kind, list | tuple | np.ndarray) for kind in kinds):
        return _vectors(values)
    if kinds == {bytes}:
        return np.array(values, object)
    if any(issubclass(kind, str | bytes) for kind in kinds):
        return np.array([_bytes(value) for value in values], object)
    if kinds == {type(None)} and not none_is_nan:
        raise ValueError("only None; write NaN for a missing number, '' for a missing text")
    if type(None) in kinds:
        values = [float("nan") if value is None else value for value in values]
    return np.array(values, np.float32)


def _vectors(values: Sequence[Any]) -> np.ndarray:
    """Returns vectors of equal length, with NaN for missing ones."""
    lengths = {len(value) for value in values if value is not None}
    if len(lengths) > 1:
        raise ValueError(f"vectors of {min(lengths)} and of {max(lengths)} numbers; give each row's the same length")
    absent = [float("nan")] * lengths.pop()
    return np.array([absent if value is None else value for value in values], np.float32)


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if value is None or isinstance(value, bytes):
        return value or b""
    raise ValueError(f"{value!r} is not a text, unlike the values before it")


def read_json(body: bytes) -> Any:
    """Parses a response's JSON, which may contain NaN and Infinity. Raises ValueError."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)


def read_output(values: object) -> np.ndarray:
    """Returns an output as an array: floats as float32, text as bytes.

    Raises ValueError if the output is not a tensor.
    """
    array = np.asarray(values)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    if array.dtype.kind in "UO":
        return np.array([_from_text(value) for value in array.reshape(-1).tolist()], object).reshape(array.shape)
    return array


def _from_text(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    raise ValueError("neither numbers nor texts")


def is_named(outputs: object) -> bool:
    """Returns whether a response has several named outputs.

    TF Serving omits the name of a single output (O2).
    """
    return isinstance(outputs, dict) and set(outputs) != {"b64"}
