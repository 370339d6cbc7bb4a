"""Results of a process's work as JSON, for a later process that continues it.

Reading JSON runs no code, unlike a pickle: others may be able to write to the folder that holds the results.
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


def result_to_json(value: Any) -> str:
    """Returns a result as JSON.

    Args:
        value: A number, a string, None, a path or an array of numbers; or a list, tuple, dictionary, counter or
            dataclass of this project with such values.

    Raises:
        TypeError: the value, or a value in it, is of another type.
    """
    return json.dumps(_to_plain(value))


def result_from_json(text: str) -> Any:
    """Returns what `result_to_json` wrote.

    Raises:
        ValueError: `result_to_json` does not write such a text.
    """
    try:
        return _from_plain(json.loads(text))
    except (KeyError, TypeError, AttributeError, ImportError) as error:
        raise ValueError(f"no result of ctrpipe: {text[:100]}") from error


def _to_plain(value: Any) -> Any:
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


def _from_plain(plain: Any) -> Any:
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
    if module.split(".")[0] in PARTS:  # written by 0.2, whose modules were named so
        module = f"{PACKAGE}.{module}"
    if module.split(".")[0] != PACKAGE:
        raise ValueError(f"no dataclass of ctrpipe: {kind}")
    dataclass: type[Any] = getattr(importlib.import_module(module), name)
    if not (isinstance(dataclass, type) and dataclasses.is_dataclass(dataclass)):
        raise ValueError(f"no dataclass of ctrpipe: {kind}")
    return dataclass
