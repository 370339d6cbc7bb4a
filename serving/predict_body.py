"""The body of a columnar predict request over REST."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson


def predict_body(signature_name: str, arrays: Mapping[str, np.ndarray]) -> bytes:
    """Returns a columnar predict request's body, with NaN and Infinity as tokens (contract J4)."""
    body = {"signature_name": signature_name, "inputs": {name: _column(values) for name, values in arrays.items()}}
    return orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)


def _column(values: np.ndarray) -> Any:
    """Returns an object that orjson serializes as the column."""
    if values.dtype == object:
        return _texts(values.tolist())
    values = np.ascontiguousarray(values)
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return values
    if np.isinf(values).any():
        return orjson.Fragment(json.dumps(values.tolist()))
    text = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    return orjson.Fragment(text.replace(b"null", b"NaN"))  # orjson writes null for NaN only


def _texts(values: list[bytes]) -> list[Any]:
    try:
        return [value.decode() for value in values]
    except UnicodeDecodeError:
        return [_text(value) for value in values]


def _text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}
