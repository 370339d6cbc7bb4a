"""Convert configurations and keywords such as `training__epochs=2` for the pipeline."""

import contextlib
import json
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from ctrpipe.common.errors import InputError
from ctrpipe.common.store_folders import fetch_file, results_at
from ctrpipe.common.stores import is_url
from ctrpipe.data import FOLDER, Data, Logs, PathLike, new_folder, place_of
from ctrpipe.drafts import Draft
from ctrpipe.mistakes import dotted
from ctrpipe.serving.stored import fetch_model

if TYPE_CHECKING:
    from ctrpipe.pipeline.config import Source

# A YAML file, its URL in a store or the name of a packaged one, a dict of its values, or the result of `init`.
Config: TypeAlias = PathLike | Mapping[str, Any] | Draft


def source_of(config: Config) -> "Source":
    """Returns the configuration as an argument of `ctrpipe.pipeline.config.load_config`. Fetches it from a URL.

    Raises:
        InputError: the configuration has another type, or a store has no such file, refuses the request or does not
            answer.
    """
    if isinstance(config, Draft):
        return config.config
    if isinstance(config, PathLike):
        if is_url(place := place_of(config)):
            return fetch_file(place)
        return pathlib.Path(place)
    if isinstance(config, Mapping):
        return config
    kind = type(config).__name__
    raise InputError(f"a configuration of type {kind}: expected a YAML file or a dict; give one of them or a draft")


@overload
def data_of(config: Config, data: Data | None) -> Data | None: ...
@overload
def data_of(config: Config, data: Logs | None) -> Logs | None: ...
def data_of(config: Config, data: Logs | None) -> Logs | None:
    """Returns the data, or the draft's data if it is None."""
    return config.data if data is None and isinstance(config, Draft) else data


def overrides(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Converts keywords to arguments of `--set`: `training__epochs=2` to `training.epochs=2`.

    Raises:
        InputError: a value cannot be written to a YAML file.
    """
    return tuple(f"{dotted(name)}={_text(name, value)}" for name, value in settings.items())


def grids(grid: Mapping[str, Sequence[Any]]) -> tuple[str, ...]:
    """Converts keywords with lists of values to arguments of `ctrpipe sweep --grid`.

    Raises:
        InputError: see `overrides`; the grid is no dict; or the values of a keyword are no list.
    """
    if not isinstance(grid, Mapping):
        raise InputError(f"grid={grid!r}: no dict of keys and lists of values; give {{'training__epochs': [1, 2]}}")
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise InputError(f"{name}={values!r}: a single value in grid; give a list of values, such as [{values!r}]")
    return tuple(f"{dotted(name)}={','.join(_text(name, value) for value in values)}" for name, values in grid.items())


def output_place(output: PathLike | None, name: str) -> str:
    """Returns the output folder or its URL, by default runs/<name>. Raises InputError, see `place_of`."""
    return f"runs/{name}" if output is None else place_of(output)


@contextlib.contextmanager
def results_folder(output: PathLike | None) -> Iterator[pathlib.Path | None]:
    """Yields the folder of a function's files; None without an output.

    For a URL, yields a folder that is removed when the process ends, and uploads its files after the block, without
    in-memory tables.

    Raises:
        InputError: see `place_of`; or the store has no such bucket, refuses a request or does not answer.
    """
    if output is None:
        yield None
        return
    with results_at(place_of(output), new_folder(), leave_out=[FOLDER]) as place:
        yield place.folder


def local_model(model: PathLike) -> pathlib.Path:
    """Returns a local path. Downloads the model or run that a store's URL names, and returns its local folder."""
    return fetch_model(place_of(model))


def _text(name: str, value: object) -> str:
    """Returns a value as JSON, which is valid YAML."""
    try:
        return json.dumps(value, default=_plain)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name}: {value!r} is not a configuration value; give numbers, texts, lists or dicts"
        ) from error


def _plain(value: object) -> Any:
    """Converts paths, numpy scalars and arrays to JSON types."""
    if isinstance(value, pathlib.Path):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError
