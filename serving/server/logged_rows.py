"""Reads rows of a REST request as a log of JSON lines has them, for `--rows_as_logged`.

TF Serving refuses a number for a column of texts, `null`, a list, an absent column and one that the model does not
know. A log has all of them, and its reader says what they mean. The inputs made here are those of `serving_raw`.
"""

import math
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.rows import RAW
from ctrpipe.serving.server.errors import bad_request
from ctrpipe.serving.server.json_values import json_type, shown
from ctrpipe.serving.server.served import ServedVersion
from ctrpipe.serving.server.tensors import decode_base64, is_base64
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import as_binary

Row = Mapping[str, Any]
_EXACT = "a whole number that is exact, or a text"
OF_RAW_COLUMNS = (RAW, "serving_explain")  # the signatures whose inputs are the raw columns


class LoggedRows:
    """Reads the rows of requests to models that ctrpipe exported. Others are TF Serving's alone."""

    def __init__(self) -> None:
        self._specs: weakref.WeakKeyDictionary[Any, LogSpec | None] = weakref.WeakKeyDictionary()

    def inputs(
        self, version: ServedVersion, request: Mapping[str, Any], signature: str
    ) -> tuple[str, dict[str, np.ndarray]] | None:
        """Returns the signature and its inputs; None for a request that is no list of rows of raw columns.

        Args:
            version: The version that is asked.
            request: The parsed body.
            signature: The signature that it names; "" for `serving_raw`.

        Raises:
            ServingError: see `logged_inputs`.
        """
        name, rows, spec = signature or RAW, request.get("instances"), self._spec(version)
        if spec is None or name not in OF_RAW_COLUMNS or name not in version.input_types:
            return None
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            return None
        return name, logged_inputs(rows, version.input_types[name], spec)

    def _spec(self, version: ServedVersion) -> LogSpec | None:
        if version.servable not in self._specs:
            try:
                self._specs[version.servable] = read_log_spec(version.servable.path)
            except InputError:
                self._specs[version.servable] = None
        return self._specs[version.servable]


def logged_inputs(rows: list[Row], dtypes: Mapping[str, tf.DType], spec: LogSpec) -> dict[str, np.ndarray]:
    """Returns the inputs of `serving_raw` for rows of a log. Other keys than its columns, as the label, are ignored.

    A missing number is NaN, a missing text "".

    Args:
        rows: The rows.
        dtypes: The type of each input of `serving_raw`.
        spec: The description of the model's log.

    Raises:
        ServingError: a value is not one that the log may have. The message names its row, from 1, and its column.
    """
    return {
        name: _texts(rows, name, spec) if dtype == tf.string else _numbers(rows, name, spec)
        for name, dtype in dtypes.items()
    }


def _texts(rows: list[Row], name: str, spec: LogSpec) -> np.ndarray:
    known = (spec.separators.get(name), spec.inner_separators.get(name))
    separators = [separator for separator in known if separator]
    return np.array([_listed(row.get(name), separators, number, name) for number, row in enumerate(rows, 1)], object)


def _listed(value: Any, separators: list[str], number: int, name: str) -> bytes:
    """Returns the text of a value, of a list, or of a list of lists, with a separator for each level."""
    if not isinstance(value, list):
        return _text(value, number, name)
    if not separators:
        raise _wrong(value, number, name, "a single value")
    elements = [_listed(element, separators[1:], number, name) for element in value]
    if any(separators[0].encode() in element for element in elements):
        raise _wrong(value, number, name, f"a list whose elements do not contain {separators[0]!r}")
    return separators[0].encode().join(elements)


def _text(value: Any, number: int, name: str) -> bytes:
    if value is None or value == "":
        return b""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if is_base64(value):
        return decode_base64(value["b64"])
    if isinstance(value, float) and math.isnan(value):
        return b""
    if not isinstance(value, bool | int | float):
        raise _wrong(value, number, name, "a text, a number, a truth value or null")
    faults: dict[int, str] = {}
    try:
        [text] = as_binary(pa.array([value]), name, "the request", faults).to_pylist()
    except (pa.ArrowException, OverflowError) as error:
        raise _wrong(value, number, name, _EXACT) from error
    if faults:
        raise _wrong(value, number, name, _EXACT)
    return text or b""


def _numbers(rows: list[Row], name: str, spec: LogSpec) -> np.ndarray:
    length = spec.vector_lengths.get(name)
    values = [_vector(row.get(name), length, number, name) for number, row in enumerate(rows, 1)]
    array = np.array(values, np.float32)
    return array if length is not None else array[:, 0]


def _vector(value: Any, length: int | None, number: int, name: str) -> list[float]:
    if value is None:
        return [math.nan] * (length or 1)
    elements = value if isinstance(value, list) and length is not None else [value]
    if len(elements) != (length or 1):
        raise _wrong(value, number, name, f"a list of {length} numbers, or null")
    return [_number(element, number, name) for element in elements]


def _number(value: Any, number: int, name: str) -> float:
    if value is None or value == "":
        return math.nan
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError as error:
            raise _wrong(value, number, name, "a number or null") from error
    if not isinstance(value, bool | int | float):
        raise _wrong(value, number, name, "a number or null")
    try:
        return float(value)
    except OverflowError:  # beyond a double: as far from all other rows as infinity
        return math.copysign(math.inf, value)


def _wrong(value: Any, number: int, name: str, expected: str) -> Exception:
    return bad_request(f"instances, row {number}, {name}: {shown(value)} Type: {json_type(value)}; send {expected}")
