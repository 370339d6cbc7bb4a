"""Reads and validates a configuration. An error is one line with the file, the key and the expected value."""

import copy
import os
import pathlib
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import pydantic
import yaml

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.near import did_you_mean
from ctrpipe.pipeline.config.keys import UnknownKeyError, nearest_key
from ctrpipe.pipeline.config.packaged_configs import config_hint, find_config, packaged_config
from ctrpipe.pipeline.config.run_config import RunConfig
from ctrpipe.pipeline.config.training import WarmStart

# A YAML file, the name of a configuration packaged with ctrpipe, or the values of such a file.
Source: TypeAlias = pathlib.Path | Mapping[str, Any]
IN_MEMORY = pathlib.Path("configuration")  # the file name in error messages about in-memory values
_WITH_NAME = ("model", "baseline")  # sections that a name alone stands for, in the mind of who writes them
_BOOL = "tag:yaml.org,2002:bool"


class _Loader(yaml.SafeLoader):
    """Reads YAML 1.1 with three differences.

    `1e-6` is a number (PyYAML requires `1.0e-6`), a key is never a boolean (YAML 1.1 reads `on` as true), and a
    repeated key is an error.
    """

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        for key, _ in node.value:
            if key.tag == _BOOL:
                key.tag = yaml.resolver.BaseResolver.DEFAULT_SCALAR_TAG
        keys = [key.value for key, _ in node.value]
        repeated = sorted({key for key in keys if isinstance(key, str) and keys.count(key) > 1})
        if repeated:
            raise yaml.YAMLError(f"the key {repeated[0]} appears twice in one mapping, {node.start_mark}")
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_yaml(text: str) -> Any:
    """Returns the value of a YAML document.

    Raises:
        yaml.YAMLError: the text is not valid YAML, or a key appears twice in one mapping.
    """
    try:
        return yaml.load(text, _Loader)
    except (ValueError, RecursionError) as error:  # an impossible date, or a thousand nested brackets
        raise yaml.YAMLError(str(error)) from error


def load_config(source: Source, settings: tuple[str, ...] = ()) -> RunConfig:
    """Reads and validates a configuration and the files that it extends.

    Args:
        source: The YAML file, the name of a packaged one (`criteo/deepfm.yaml`), or its values.
        settings: Overrides such as `training.epochs=2`; the value is parsed as YAML.

    Raises:
        InputError: a file cannot be read, is not YAML or extends itself, or a key is missing or has a wrong value.
        UnknownKeyError: a key is unknown.
    """
    files = _with_extended(source)
    values: dict[str, Any] = {}
    for one in reversed(files.values()):
        values = merged(values, one)
    return _validated(values, settings, lambda key: _setting_of(settings, key) or _place(files, key))


def with_parent(config: RunConfig, parent: str) -> RunConfig:
    """Returns the configuration with another `training.warm_start.parent`."""
    start = (config.training.warm_start or WarmStart(parent=parent)).model_copy(update={"parent": parent})
    return config.model_copy(update={"training": config.training.model_copy(update={"warm_start": start})})


def merged(values: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Returns `values` overridden by `own`: mappings are merged key by key, all other values are replaced."""
    both = {**values, **own}
    for key in values.keys() & own.keys():
        if isinstance(values[key], dict) and isinstance(own[key], dict):
            both[key] = merged(values[key], own[key])
    return both


def path_of(source: Source) -> pathlib.Path:
    """Returns the file of a configuration; for in-memory values, the name used in error messages."""
    return IN_MEMORY if isinstance(source, Mapping) else find_config(source)


def _with_extended(source: Source) -> dict[pathlib.Path, dict[str, Any]]:
    """Returns the values by file: first the configuration, then the file that it extends, and so on."""
    path = path_of(source)
    files = {path: copy.deepcopy(dict(source)) if isinstance(source, Mapping) else _read_mapping(path)}
    while "extends" in files[path]:
        base = files[path].pop("extends")
        if not isinstance(base, str) or not base or "\0" in base:
            raise InputError(f"{path}: extends: expected the path of one YAML file. Received: {base!r}")
        extended = path.parent / base
        if not extended.exists():
            extended = packaged_config(pathlib.Path(base)) or extended
        if os.path.realpath(extended) in map(os.path.realpath, files):
            circle = " -> ".join(map(str, [*files, extended]))
            raise InputError(f"{path}: extends: {circle} is a circle; a file must not extend itself")
        try:
            files[extended] = _read_mapping(extended)
        except InputError as error:
            raise InputError(f"{path}: extends: {error}") from error
        path = extended
    return files


def _read_mapping(path: pathlib.Path) -> dict[str, Any]:
    """Returns the values of one file."""
    hint = _hint(path)
    try:
        text = path.read_text()
    except OSError as error:
        raise unread_config(path, error) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (invalid UTF-8){hint}") from error
    try:
        values = read_yaml(text)
    except yaml.YAMLError as error:
        reason = "this command takes a configuration" if hint else one_line(error)
        raise InputError(f"{path}: not valid YAML: {reason}{hint}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected a mapping with the keys name, data, features, model{hint}")
    return values


def unread_config(path: pathlib.Path, error: OSError) -> InputError:
    """Returns the error of a configuration that cannot be read."""
    if isinstance(error, IsADirectoryError):
        advice = "; name its YAML file"
    else:
        advice = config_hint(path) if isinstance(error, FileNotFoundError) else "; check the path"
    return InputError(f"{path}: cannot read the configuration: {error.strerror}{advice}")


def _hint(path: pathlib.Path) -> str:
    """Returns the command that drafts a configuration, if the file is likely a log; "" for YAML."""
    if path.suffix.lower() in (".yaml", ".yml") or not path.is_file():
        return ""
    return f"; `ctrpipe init {shlex.quote(str(path))}` drafts a configuration for a log"


def _place(files: dict[pathlib.Path, dict[str, Any]], key: tuple[int | str, ...]) -> pathlib.Path:
    """Returns the file that sets `key` or its nearest parent key; the first file if none does."""
    for length in range(len(key), 0, -1):
        for path, values in files.items():
            if _has(values, key[:length]):
                return path
    return next(iter(files))


def _has(values: object, key: tuple[int | str, ...]) -> bool:
    for part in key:
        if not isinstance(values, dict) or part not in values:
            return False
        values = values[part]
    return True


def check_config(values: dict[str, Any], settings: tuple[str, ...], source: pathlib.Path | str) -> RunConfig:
    """Returns the validated configuration of `values`, into which extended files are already merged, and overrides.

    Args:
        values: The values of the YAML file; the overrides are written into them.
        settings: Overrides such as `training.epochs=2`; the value is parsed as YAML.
        source: The file that error messages name.

    Raises:
        InputError: a key of `source` is missing or has a wrong value.
        UnknownKeyError: a key is unknown.
    """
    return _validated(values, settings, lambda key: source)


def as_settings(values: dict[str, Any]) -> tuple[str, ...]:
    """Returns keys and values as overrides for `load_config`."""
    return tuple(
        f"{key}={yaml.safe_dump(value, default_flow_style=True, width=10**6)}" for key, value in values.items()
    )


def _validated(
    values: dict[str, Any], settings: tuple[str, ...], place: Callable[[tuple[int | str, ...]], pathlib.Path | str]
) -> RunConfig:
    """Returns the validated configuration; `place` returns the file or override that sets a key."""
    for setting in settings:
        _apply(values, setting)
    try:
        return RunConfig.model_validate(values)
    except pydantic.ValidationError as error:
        raise _mistake(error, values, place) from error


def _mistake(
    error: pydantic.ValidationError,
    values: dict[str, Any],
    place: Callable[[tuple[int | str, ...]], pathlib.Path | str],
) -> InputError:
    """Returns the error for the first mistake; for an unknown key, with the nearest known key."""
    first = error.errors(include_url=False)[0]
    key = _dotted(first["loc"])
    nearest = None
    if first["type"] == "extra_forbidden":
        model = values.get("model")
        name = model.get("name") if isinstance(model, dict) else None
        nearest = nearest_key(key, name if isinstance(name, str) else None)
    text = _explain(place(first["loc"]), error, nearest)
    return UnknownKeyError(text, key, nearest) if first["type"] == "extra_forbidden" else InputError(text)


def _setting_of(settings: tuple[str, ...], key: tuple[int | str, ...]) -> str | None:
    """Returns the last override that sets a key or one of its parent keys; None if there is none."""
    for setting in reversed(settings):
        said = setting.partition("=")[0].split(".")
        if [str(part) for part in key[: len(said)]] == said:
            return f"--set {setting}"
    return None


def _apply(values: dict[str, Any], setting: str) -> None:
    """Writes one override, such as `training.epochs=2`, into the values."""
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


def _explain(source: pathlib.Path | str, error: pydantic.ValidationError, nearest: str | None) -> str:
    """Returns one line that describes the first mistake and states how many more there are.

    Args:
        source: The file or override that sets the key.
        error: The validation error.
        nearest: The known key nearest to an unknown one; None if there is none.
    """
    mistakes = error.errors(include_url=False)
    first = mistakes[0]
    key = _dotted(first["loc"])
    if first["type"] == "extra_forbidden":
        hint = f"did you mean {nearest}?" if nearest else "remove it or check the spelling"
        text = f"{source}: {key}: unknown key; {hint}"
    elif first["type"] == "missing":
        text = f"{source}: {key}: this key is required"
    elif first["type"] in ("model_type", "dict_type"):
        named = f"{{name: {first['input']}}}" if key.endswith(_WITH_NAME) and isinstance(first["input"], str) else "{}"
        text = f"{source}: {key}: expected keys and their values, or {named}. Received: {first['input']!r}"
    elif first["type"] == "value_error":
        text = f"{source}: {key}: {first['ctx']['error']}"
    else:
        text = f"{source}: {key}: {first['msg']}. Received: {first['input']!r}{_meant(first)}"
    return one_line(text) + (f" (and {len(mistakes) - 1} more mistakes)" if len(mistakes) > 1 else "")


def _meant(mistake: Any) -> str:
    """Returns a suggestion of the allowed value nearest to a wrong one, as the end of a message; or ""."""
    context = mistake.get("ctx", {})
    given = context.get("tag", mistake["input"])  # a tag is the value that tells which keys a section has: `kind`
    known = re.findall(r"'([^']*)'", str(context.get("expected_tags", context.get("expected", ""))))
    return did_you_mean(given, known) if isinstance(given, str) else ""


def _dotted(place: tuple[int | str, ...]) -> str:
    return ".".join(map(str, place)) or "configuration"
