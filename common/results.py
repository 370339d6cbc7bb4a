"""Results of one process's work as JSON, for another process that goes on with them. Reading them runs no code.

A pickle would: whoever can write to the folder could have the reader run anything.
"""

import collections
import dataclasses
import importlib
import json
import pathlib
from typing import Any

import numpy as np

from common.packages import PACKAGES

_KIND = "kind"
_VALUE = "value"


def result_to_json(value: Any) -> str:
    """Writes a result.

    Args:
        value: A number, a text, None, a path, an array of numbers; a list, tuple, dictionary, counter or dataclass of
            ours with such values.

    Raises:
        TypeError: the value, or one in it, is something else.
    """
    return json.dumps(_to_plain(value))


def result_from_json(text: str) -> Any:
    """Returns what `result_to_json` wrote.

    Raises:
        ValueError: the text is nothing that it writes.
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
    if dataclasses.is_dataclass(value) and type(value).__module__.split(".")[0] in PACKAGES:
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
        made = {_from_plain(key): _from_plain(item) for key, item in value}
        return collections.Counter(made) if kind == "counter" else made
    if kind == "path":
        return pathlib.Path(value)
    if ":" not in kind:
        return np.array(value, np.dtype(kind))
    return _dataclass(kind)(**{name: _from_plain(item) for name, item in value.items()})


def _dataclass(kind: str) -> type[Any]:
    module, name = kind.split(":")
    if module.split(".")[0] not in PACKAGES:
        raise ValueError(f"no dataclass of ctrpipe: {kind}")
    found: type[Any] = getattr(importlib.import_module(module), name)
    if not (isinstance(found, type) and dataclasses.is_dataclass(found)):
        raise ValueError(f"no dataclass of ctrpipe: {kind}")
    return found
