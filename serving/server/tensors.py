"""JSON values <-> tensors, by the rules of TF Serving's json_tensor.cc (contract P5-P20, O1-O9)."""

import base64
import binascii
import json
from typing import Any

import numpy as np
import tensorflow as tf

from serving.server.errors import ServingError, bad_request

_INTEGER_LIMITS = {
    tf.int8: (-(2**31), 2**31 - 1),
    tf.int16: (-(2**31), 2**31 - 1),
    tf.int32: (-(2**31), 2**31 - 1),
    tf.uint8: (-(2**31), 2**31 - 1),
    tf.int64: (-(2**63), 2**63 - 1),
    tf.uint32: (0, 2**32 - 1),
    tf.uint64: (0, 2**64 - 1),
}
_FLOATS = (tf.float32, tf.float64)


def shown(value: Any) -> str:
    """A value as errors echo it, cut at 256 bytes (J9)."""
    return json.dumps(value, indent=4)[:256]


def _json_type(value: Any) -> str:
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "Boolean"
    if isinstance(value, int | float):
        return "Number"
    if isinstance(value, str):
        return "String"
    return "Array" if isinstance(value, list) else "Object"


def _is_b64(value: Any) -> bool:
    return isinstance(value, dict) and list(value) == ["b64"]


def to_tensor(value: Any, dtype: tf.DType) -> np.ndarray:
    """One JSON value, scalar or nested list, as a tensor."""
    if dtype in _FLOATS:
        fast = _fast_floats(value, dtype)
        if fast is not None:
            return fast
    elif dtype == tf.string and isinstance(value, list) and all(type(item) is str for item in value):
        return np.array([item.encode() for item in value], object)
    flat: list[Any] = []
    shape = _shape(value)
    _fill(value, dtype, shape, 0, flat)
    if dtype == tf.string:
        array = np.empty(len(flat), object)
        array[:] = flat
    else:
        with np.errstate(over="ignore"):
            array = np.array(flat, dtype.as_numpy_dtype)
    return array.reshape(shape)


def _fast_floats(value: Any, dtype: tf.DType) -> np.ndarray | None:
    """A flat list of floats, the common case; anything else takes the careful path."""
    if isinstance(value, list) and all(type(item) is float for item in value):
        with np.errstate(over="ignore"):
            return np.array(value, np.float64).astype(dtype.as_numpy_dtype)
    return None


def _shape(value: Any) -> list[int]:
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        if not value:
            break
        value = value[0]
    return shape


def _fill(value: Any, dtype: tf.DType, shape: list[int], level: int, flat: list[Any]) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            raise bad_request(
                f"JSON Value: {shown(value)} found at incorrect level: {level} in the JSON DOM. "
                f"Expected at level: {len(shape)}"
            )
        flat.append(_scalar(value, dtype))
        return
    if level >= len(shape):
        raise bad_request(f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise bad_request(
            f"Encountered list at unexpected size: {len(value)} at level: {level} expected size: {shape[level]}"
        )
    for item in value:
        _fill(item, dtype, shape, level + 1, flat)


def _scalar(value: Any, dtype: tf.DType) -> Any:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if dtype in _FLOATS and is_number:
        return float(value)
    if dtype in _INTEGER_LIMITS and isinstance(value, int) and not isinstance(value, bool):
        low, high = _INTEGER_LIMITS[dtype]
        if low <= value <= high:
            info = np.iinfo(dtype.as_numpy_dtype)
            span = int(info.max) - int(info.min) + 1
            return (value - int(info.min)) % span + int(info.min)  # narrow types wrap, as a C++ cast does
    if dtype == tf.bool and isinstance(value, bool):
        return value
    if dtype == tf.string and isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if dtype == tf.string and isinstance(value, dict):
        return _base64(value)
    if dtype not in _FLOATS and dtype not in _INTEGER_LIMITS and dtype not in (tf.bool, tf.string):
        raise ServingError("UNIMPLEMENTED", f"Conversion of JSON Value: {shown(value)} to type: {dtype.name}")
    name = {tf.float32: "float", tf.float64: "double"}.get(dtype, dtype.name)
    raise bad_request(f"JSON Value: {shown(value)} Type: {_json_type(value)} is not of expected type: {name}")


def _base64(value: dict[str, Any]) -> bytes:
    if not _is_b64(value) or not isinstance(value["b64"], str):
        raise bad_request(f"JSON Value: {shown(value)} not formatted correctly for base64 data")
    try:
        return base64.b64decode(value["b64"], validate=True)
    except binascii.Error as error:
        raise bad_request("Unable to base64 decode") from error


def parse_predict(body: dict[str, Any], dtypes: dict[str, tf.DType]) -> tuple[dict[str, np.ndarray], bool]:
    """The inputs of a predict request, and whether it was in row format."""
    if "instances" in body and "inputs" in body:
        raise bad_request("Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist ")
    if "instances" in body:
        return _parse_rows(body["instances"], dtypes), True
    if "inputs" in body:
        return _parse_columns(body["inputs"], dtypes), False
    raise bad_request("Missing 'inputs' or 'instances' key")


def _parse_rows(instances: Any, dtypes: dict[str, tf.DType]) -> dict[str, np.ndarray]:
    if not isinstance(instances, list):
        raise bad_request("Expecting 'instances' to be an list/array")
    if not instances:
        raise bad_request("No values in 'instances' array")
    named = isinstance(instances[0], dict) and not _is_b64(instances[0])
    if not named:
        if len(dtypes) > 1:
            raise bad_request(
                "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
                "tensorinfo_map"
            )
        for index, item in enumerate(instances):
            if isinstance(item, dict) and not _is_b64(item):
                raise bad_request(f"Expecting value/list but got object at item {index} of input list")
        [(name, dtype)] = dtypes.items()
        return {name: _batch(instances, dtype)}
    columns: dict[str, list[Any]] = {name: [] for name in dtypes}
    for index, item in enumerate(instances):
        if not isinstance(item, dict) or _is_b64(item):
            raise bad_request(f"Expecting object but got list at item {index} of input list")
        for key in item:
            if key not in dtypes:
                raise bad_request(
                    f"Failed to process element: {index} key: {key} of 'instances' list. "
                    f"Error: INVALID_ARGUMENT: JSON object: does not have named input: {key}"
                )
        if len(item) != len(dtypes):
            raise bad_request(
                f"Failed to process element: {index} of 'instances' list. JSON object: {shown(item)} "
                f"keys must be equal to: {','.join(sorted(dtypes))}"
            )
        for key, value in item.items():
            columns[key].append(value)
    return {name: _batch(values, dtypes[name]) for name, values in columns.items()}


def _batch(values: list[Any], dtype: tf.DType) -> np.ndarray:
    if not any(isinstance(value, list) for value in values):
        return to_tensor(values, dtype)
    parts = [to_tensor(value, dtype) for value in values]
    for part in parts:
        if part.size != parts[0].size:
            raise bad_request(f"Expecting tensor size: {parts[0].size} but got: {part.size}")
        if part.shape != parts[0].shape:
            raise bad_request(f"Expecting shape {list(parts[0].shape)} but got: {list(part.shape)}")
    return np.stack(parts)


def _parse_columns(inputs: Any, dtypes: dict[str, tf.DType]) -> dict[str, np.ndarray]:
    named = isinstance(inputs, dict) and not _is_b64(inputs)
    if not named:
        if len(dtypes) > 1:
            raise bad_request(
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            )
        [(name, dtype)] = dtypes.items()
        return {name: to_tensor(inputs, dtype)}
    for name in dtypes:
        if name not in inputs:
            raise bad_request(f"Missing named input: {name} in 'inputs' object.")
    return {name: to_tensor(inputs[name], dtype) for name, dtype in dtypes.items()}


# Responses -----------------------------------------------------------------------------------------------------------


def format_predict(outputs: dict[str, np.ndarray], by_row: bool) -> bytes:
    """The body of a predict response (O1-O9)."""
    texts = {name: _to_json(name, np.asarray(value)) for name, value in outputs.items()}
    if not by_row:
        if len(texts) == 1:
            return b'{"outputs": ' + _join(next(iter(texts.values()))) + b"\n}"
        pairs = (json.dumps(name).encode() + b": " + _join(value) for name, value in texts.items())
        return b'{"outputs": {' + b", ".join(pairs) + b"}\n}"
    size = None
    for name, value in outputs.items():
        if not np.ndim(value):
            raise bad_request(f"Tensor name: {name} has no shape information ")
        size = len(value) if size is None else size
        if len(value) != size:
            raise bad_request(f"Tensor name: {name} has inconsistent batch size: {len(value)} expecting: {size}")
    if len(texts) == 1:
        return b'{"predictions": ' + _join(next(iter(texts.values()))) + b"\n}"
    names = [json.dumps(name).encode() + b": " for name in texts]
    rows = zip(*texts.values(), strict=True)
    objects = (b"{" + b", ".join(n + _join(v) for n, v in zip(names, row, strict=True)) + b"}" for row in rows)
    return b'{"predictions": [' + b", ".join(objects) + b"]\n}"


def _join(value: bytes | list) -> bytes:
    return value if isinstance(value, bytes) else b"[" + b", ".join(map(_join, value)) + b"]"


def _to_json(name: str, array: np.ndarray) -> bytes | list:
    """A tensor as nested lists of JSON texts."""
    kind = array.dtype.kind
    if kind == "f" and array.dtype.itemsize >= 4:
        texts = [_float(value) for value in array.reshape(-1)]
    elif kind in "iu":
        texts = [b"%d" % value for value in array.reshape(-1).tolist()]
    elif kind == "b":
        texts = [b"true" if value else b"false" for value in array.reshape(-1).tolist()]
    elif kind in "OSU":
        texts = [_string(name, value) for value in array.reshape(-1).tolist()]
    else:
        raise bad_request(f"Failed to write JSON value for tensor type: {tf.as_dtype(array.dtype).name}")
    return _nest(texts, array.shape)


def _nest(texts: list[bytes], shape: tuple[int, ...]) -> bytes | list:
    if not shape:
        return texts[0]
    if len(shape) == 1:
        return list(texts)
    step = len(texts) // shape[0] if shape[0] else 0
    return [_nest(texts[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def _float(value: np.floating) -> bytes:
    """Shortest text that reads back as the same value of its own width (O5)."""
    if np.isnan(value):
        return b"NaN"
    if np.isinf(value):
        return b"Infinity" if value > 0 else b"-Infinity"
    if value == 0:
        return b"-0.0" if np.signbit(value) else b"0.0"
    if 1e-4 <= abs(value) < 1e6:
        return np.format_float_positional(value, unique=True, trim="0").encode()
    return np.format_float_scientific(value, unique=True, trim="-", exp_digits=2).encode()


def _string(name: str, value: Any) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    if name.endswith("_bytes"):
        return b'{"b64": "' + base64.b64encode(raw) + b'"}'
    # TF Serving writes strings without a UTF-8 check.
    return json.dumps(raw.decode("utf-8", "surrogateescape"), ensure_ascii=False).encode("utf-8", "surrogateescape")
