"""Configurations and keys as Python gives them: a path, a dict or a draft, and `training__epochs=2`."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ctrpipe.common.errors import InputError
from ctrpipe.data import Data, PathLike
from ctrpipe.drafts import Draft
from ctrpipe.mistakes import dotted

if TYPE_CHECKING:
    from ctrpipe.pipeline.config import Source

# A YAML file or the name of one that comes with ctrpipe, the values of one, or what `init` returned.
Config: TypeAlias = PathLike | Mapping[str, Any] | Draft


def source_of(config: Config) -> "Source":
    """Returns a configuration as `ctrpipe.pipeline.config.load_config` takes it."""
    if isinstance(config, Draft):
        return config.config
    return pathlib.Path(config) if isinstance(config, PathLike) else config


def data_of(config: Config, data: Data | None) -> Data | None:
    """Returns the data, or where there are none those that a draft was made for."""
    return config.data if data is None and isinstance(config, Draft) else data


def overrides(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns keys and their values as `--set` takes them: `training.epochs=2` for `training__epochs=2`.

    Raises:
        InputError: a value is none that a YAML file may hold.
    """
    return tuple(f"{dotted(name)}={_text(name, value)}" for name, value in settings.items())


def grids(grid: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Returns keys and their lists of values as `ctrpipe sweep --grid` takes them.

    Raises:
        InputError: as `overrides`.
    """
    return tuple(f"{dotted(name)}={','.join(_text(name, value) for value in values)}" for name, values in grid.items())


def output_folder(output: PathLike | None, name: str) -> pathlib.Path:
    """Returns the folder of a result: the one that was named, or that of this name in runs/."""
    return pathlib.Path("runs") / name if output is None else pathlib.Path(output)


def _text(name: str, value: Any) -> str:
    """Returns a value as JSON, which is YAML too."""
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: {value!r} is no value of a configuration; give numbers, texts, lists or dicts"
        ) from error


def _plain(value: Any) -> Any:
    """Returns numpy's numbers and arrays, and paths, as JSON has them."""
    if isinstance(value, pathlib.Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError
