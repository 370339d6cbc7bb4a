"""Serialize results as JSON, for a later process that continues the work.

Unlike a pickle, JSON runs no code when it is read: others may have write access to the folder of the results.
"""

import collections
import dataclasses
import importlib
import json
import pathlib
from typing import Any

import numpy as np

from ctrpipe.common.packages import PACKAGE, PARTS

_KIND = "kind"
_VALUE = "value"


def result_to_json(value: object) -> str:
    """Serializes a result as JSON.

    Args:
        value: A number, string, None, path or numeric array; or a list, tuple, dict, Counter or dataclass of ctrpipe
            that contains such values.

    Raises:
        TypeError: the value contains another type.
    """
    return json.dumps(_to_plain(value))


def result_from_json(text: str) -> Any:
    """Deserializes the output of `result_to_json`.

    Raises:
        ValueError: the text is not an output of `result_to_json`.
    """
    try:
        return _from_plain(json.loads(text))
    except (KeyError, TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"not a result of ctrpipe: {text[:100]}") from error


def _to_plain(value: object) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_to_plain(item) for item in value]
    if isinstance(value, tuple):
        return {_KIND: "tuple", _VALUE: [_to_plain(item) for item in value]}
    if isinstance(value, dict):
        kind = "counter" if isinstance(value, collections.Counter) else "dict"
        return {_KIND: kind, _VALUE: [[_to_plain(key), _to_plain(item)] for key, item in value.items()]}
    if isinstance(value, pathlib.Path):
        return {_KIND: "path", _VALUE: str(value)}
    if isinstance(value, np.ndarray) and value.dtype.kind in "biuf":
        return {_KIND: value.dtype.str, _VALUE: value.tolist()}
    if dataclasses.is_dataclass(value) and type(value).__module__.split(".")[0] == PACKAGE:
        fields = {field.name: _to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {_KIND: f"{type(value).__module__}:{type(value).__qualname__}", _VALUE: fields}
    raise TypeError(f"no result that can be written as JSON: {type(value).__name__}")


def _from_plain(plain: object) -> Any:
    if isinstance(plain, list):
        return [_from_plain(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    kind, value = plain[_KIND], plain[_VALUE]
    if kind == "tuple":
        return tuple(_from_plain(item) for item in value)
    if kind in ("dict", "counter"):
        mapping = {_from_plain(key): _from_plain(item) for key, item in value}
        return collections.Counter(mapping) if kind == "counter" else mapping
    if kind == "path":
        return pathlib.Path(value)
    if ":" not in kind:
        return np.array(value, np.dtype(kind))
    return _dataclass(kind)(**{name: _from_plain(item) for name, item in value.items()})


def _dataclass(kind: str) -> type[Any]:
    module, name = kind.split(":")
    if module.split(".")[0] in PARTS:  # written by version 0.2, with other module names
        module = f"{PACKAGE}.{module}"
    if module.split(".")[0] != PACKAGE:
        raise ValueError(f"not a dataclass of ctrpipe: {kind}")
    dataclass: type[Any] = getattr(importlib.import_module(module), name)
    if not (isinstance(dataclass, type) and dataclasses.is_dataclass(dataclass)):
        raise ValueError(f"not a dataclass of ctrpipe: {kind}")
    return dataclass
