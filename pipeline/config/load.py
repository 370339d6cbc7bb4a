"""Reads a configuration; errors name the file, the key and what was expected, on one line."""

import pathlib
import re
from typing import Any

import pydantic
import yaml

from common.errors import InputError, one_line
from pipeline.config.run_config import RunConfig


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.1, with two differences: 1e-6 is a number (PyYAML wants 1.0e-6), and a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        repeated = sorted({key for key in keys if isinstance(key, str) and keys.count(key) > 1})
        if repeated:
            raise yaml.YAMLError(f"the key {repeated[0]} comes twice in one mapping, {node.start_mark}")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(text: str) -> Any:
    """Returns the value that a YAML text describes.

    Raises:
        yaml.YAMLError: the text is not valid YAML, or a key comes twice in one mapping.
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:  # a date that does not exist, a thousand brackets
        raise yaml.YAMLError(str(error)) from error


def load_config(path: pathlib.Path, settings: tuple[str, ...] = ()) -> RunConfig:
    """Reads and validates a configuration.

    Args:
        path: The YAML file.
        settings: Overrides as `training.epochs=2`; the value is read as YAML.

    Raises:
        InputError: the file cannot be read, is no YAML, or a key is unknown, missing or has a wrong value.
    """
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"{path}: cannot read the configuration: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (invalid UTF-8)") from error
    try:
        values = read_yaml(text)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {one_line(error)}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a mapping with the keys name, data, features, model")
    return check_config(values, settings, path)


def check_config(values: dict[str, Any], settings: tuple[str, ...], source: pathlib.Path | str) -> RunConfig:
    """Returns the validated configuration of a YAML file's values and of overrides.

    Args:
        values: The values of the YAML file; the overrides are written into them.
        settings: Overrides as `training.epochs=2`; the value is read as YAML.
        source: The file that error messages name.

    Raises:
        InputError: a key of `source` is unknown, missing or has a wrong value.
    """
    for setting in settings:
        _apply(values, setting)
    try:
        return RunConfig.model_validate(values)
    except pydantic.ValidationError as error:
        raise InputError(_explain(source, error)) from error


def _apply(values: dict[str, Any], setting: str) -> None:
    """Writes one override, as `training.epochs=2`, into the values."""
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise InputError(f"--set {setting}: expected KEY=VALUE, as in --set training.epochs=2")
    *parents, last = key.split(".")
    place: Any = values
    for parent in parents:
        if place.get(parent) is None:
            place[parent] = {}
        place = place[parent]
        if not isinstance(place, dict):
            raise InputError(f"--set {setting}: '{parent}' is not a group of settings, so '{key}' does not exist")
    try:
        place[last] = read_yaml(value)
    except yaml.YAMLError as error:
        raise InputError(f"--set {setting}: the value is not valid YAML") from error


def _explain(source: pathlib.Path | str, error: pydantic.ValidationError) -> str:
    """Returns one line for the first mistake, and how many more there are."""
    mistakes = error.errors(include_url=False)
    first = mistakes[0]
    key = ".".join(str(part) for part in first["loc"]) or "configuration"
    if first["type"] == "extra_forbidden":
        text = f"{source}: {key}: unknown key; remove it or check the spelling"
    elif first["type"] == "missing":
        text = f"{source}: {key}: this key is required"
    elif first["type"] == "value_error":
        text = f"{source}: {key}: {first['ctx']['error']}"
    else:
        text = f"{source}: {key}: {first['msg']}. Received: {first['input']!r}"
    return one_line(text) + (f" (and {len(mistakes) - 1} more mistakes)" if len(mistakes) > 1 else "")
