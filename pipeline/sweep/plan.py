"""The plan of a sweep: named points, each with a few settings on top of one configuration."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import pydantic
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.progress import announce
from ctrpipe.models.base.registry import model_class
from ctrpipe.pipeline.config import (
    Model,
    RunConfig,
    Source,
    as_settings,
    load_config,
    path_of,
    read_yaml,
    unread_config,
)
from ctrpipe.serving.latency.papers import BERT4CTR_BATCHES, BERT4CTR_ROWS
from ctrpipe.transforms.log.section import Section

VARIABLE = ("model", "training")  # sections that may differ between points; data, features and seeds are shared


class Group(Section):
    """Points of a sweep file: one point, or with a grid one for each combination of values.

    Attributes:
        name: The group's name. The names of its points start with it.
        set: Keys of the configuration and their values, for all points of the group.
        grid: Keys of the configuration, each with a list of values.
    """

    name: str = pydantic.Field(min_length=1)
    set: dict[str, Any] = {}
    grid: dict[str, list[Any]] = {}


class Costs(Section):
    """How to measure the training and prediction time per row: 20 repeats of some batches (BERT4CTR, section 4.1.5).

    Attributes:
        batch_size: Rows per batch.
        batches: Batches per repeat.
    """

    batch_size: int = pydantic.Field(BERT4CTR_ROWS, ge=1)
    batches: int = pydantic.Field(BERT4CTR_BATCHES, ge=1)


class SweepFile(Section):
    """A sweep file. It can describe any `ctrpipe sweep CONFIG --grid ...`, and also points that form no grid.

    Attributes:
        name: The sweep's name, and the name of its default output folder.
        config: Path of the run's configuration, relative to this file.
        set: Keys of the configuration and their values, for all points.
        seeds: Number of training runs per point.
        latency: Whether to measure the prediction time.
        costs: Whether, and how, to measure the time per row.
        reference: The point that others are compared with. None: the first.
        points: The groups of points.
    """

    name: str = pydantic.Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    config: str
    set: dict[str, Any] = {}
    seeds: int = pydantic.Field(3, ge=1)
    latency: bool = False
    costs: Costs | None = None
    reference: str | None = None
    points: list[Group] = pydantic.Field(min_length=1)


@dataclasses.dataclass(frozen=True)
class Point:
    """One setting of model and training.

    Attributes:
        name: The point's name, unique in a sweep.
        group: Its group's name.
        grid: The point's values of the group's grid.
        changes: All keys of the configuration that the point changes, with their values.
        config: The point's configuration.
    """

    name: str
    group: str
    grid: dict[str, Any]
    changes: dict[str, Any]
    config: RunConfig


@dataclasses.dataclass(frozen=True)
class SweepPlan:
    """A sweep, without its data.

    Attributes:
        name: The sweep's name.
        base: The configuration that the points modify.
        points: The points.
        seeds: Number of training runs per point.
        latency: Whether to measure the prediction time.
        reference: The point that others are compared with. None: the first.
        costs: How to measure the time per row. None: not measured.
    """

    name: str
    base: RunConfig
    points: tuple[Point, ...]
    seeds: int
    latency: bool
    reference: str | None
    costs: Costs | None = None


def make_plan(
    source: Source,
    settings: tuple[str, ...] = (),
    grid: tuple[str, ...] = (),
    seeds: int | None = None,
    name: str | None = None,
    latency: bool = False,
    costs: bool = False,
    config: Source | None = None,
) -> SweepPlan:
    """Makes a plan from a run's configuration or a sweep file, and the options of the command line.

    Args:
        source: A run's configuration, as in `load_config`, or a sweep file. A sweep file has the key `points`.
        settings: Overrides for every point, such as `training.epochs=2`. They take precedence over the file's.
        grid: Values of a key, such as `model.top_k=2,5,10`. Requires a run's configuration.
        seeds: Training runs per point, 3 by default.
        name: The sweep's name.
        latency: Whether to measure the prediction time.
        costs: Whether to measure the time per row.
        config: A run's configuration that replaces the one in the sweep file.

    Raises:
        InputError: a file cannot be read, or a point is impossible; the message names the point.
    """
    path = path_of(source)
    file, config = read_sweep(source, grid, config)
    base = load_config(config, (*as_settings(file.set), *settings))
    points = tuple(point for group in file.points for point in _points(config, file, group, settings, base))
    base = base.model_copy(update={"raw_numbers": any(point.config.log_spec.raw_numbers for point in points)})
    _announce_left_out(points, base.model)
    _check(path, file, points)
    measured = latency or file.latency, file.reference, file.costs or (Costs() if costs else None)
    return SweepPlan(name or file.name, base, points, seeds or file.seeds, *measured)


def read_sweep(source: Source, grid: tuple[str, ...] = (), config: Source | None = None) -> tuple[SweepFile, Source]:
    """Returns a sweep file and a run's configuration. If the source is a configuration, the file is made of the grid.

    Args:
        source, grid, config: As in `make_plan`.

    Raises:
        InputError: the file cannot be read; or there are neither points nor a grid, or both.
    """
    path = path_of(source)
    file = _read(source)
    if file is None:
        if not grid:
            raise InputError(f"{path}: give --grid KEY=VALUE,VALUE, or a sweep file (one with the key 'points')")
        values = dict(_grid_values(text) for text in grid)
        file = SweepFile(name=_stem(source), config=path.name, points=[Group(name="grid", grid=values)])
        return file, config or source
    if grid:
        raise InputError(f"--grid: {path} has its points already; give a run's configuration instead")
    return file, config or path.parent / file.config


def _stem(source: Source) -> str:
    """Returns a configuration's name for a sweep: the file's stem, or the key `name` of a mapping."""
    return str(source.get("name", "sweep")) if isinstance(source, Mapping) else source.stem


def _read(source: Source) -> SweepFile | None:
    """Returns the sweep file, or None if the source is a run's configuration."""
    path, values = path_of(source), source
    if isinstance(values, pathlib.Path):
        try:
            values = read_yaml(path.read_text())
        except OSError as error:
            raise unread_config(path, error) from error
        except (yaml.YAMLError, UnicodeDecodeError):
            return None  # load_config reports the error
    if not isinstance(values, Mapping) or "points" not in values:
        return None
    try:
        return SweepFile.model_validate(values)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{path}: {key}: {first['msg']}. Received: {first['input']!r}") from error


def _grid_values(text: str) -> tuple[str, list[Any]]:
    key, equals, values = text.partition("=")
    try:
        items = read_yaml(f"[{values}]")
    except yaml.YAMLError as error:
        raise InputError(f"--grid {text}: the values are not valid YAML") from error
    if not equals or not key or not items:
        raise InputError(f"--grid {text}: expected KEY=VALUE,VALUE as in --grid model.top_k=2,5,10")
    return key, items


def _points(
    config: Source, file: SweepFile, group: Group, settings: tuple[str, ...], base: RunConfig
) -> Iterator[Point]:
    keys = list(group.grid)
    fixed = [setting.partition("=")[0] for setting in settings]
    for key in keys + list(group.set):
        section, dot, rest = key.partition(".")
        if section not in VARIABLE:
            near = did_you_mean(section, VARIABLE).replace("?", f"{dot}{rest}?")
            raise InputError(f"point '{group.name}': {key}: only model and training may differ between points{near}")
        whole = next((name for name in fixed if f"{key}.".startswith(f"{name}.")), None)
        if key in keys and whole:
            raise InputError(f"--set {whole}: the sweep varies {key}; leave one of the two out")
    for combination in itertools.product(*group.grid.values()):
        values = dict(zip(keys, combination, strict=True))
        name = _name(group, values)
        changes = _other_model(name, {**group.set, **values}, base.model)
        try:
            loaded = load_config(config, (*as_settings(file.set), *as_settings(changes), *settings))
        except InputError as error:
            raise InputError(f"point '{name}': {error}") from error
        yield Point(name, group.name, values, changes, loaded)


def _name(group: Group, values: dict[str, Any]) -> str:
    last = [key.rpartition(".")[2] for key in values]
    short = last if len(set(last)) == len(last) else list(values)
    parts = [f"{key}={value_text(value)}" for key, value in zip(short, values.values(), strict=True)]
    return " ".join([*([group.name] if group.name != "grid" or not parts else []), *parts])


def value_text(value: object) -> str:
    """Formats a setting's value for the names of points and trials: `128-64` for a list."""
    if isinstance(value, list):
        return "-".join(map(str, value))
    return "none" if value is None else str(value)


def _other_model(point: str, changes: dict[str, Any], base: Model) -> dict[str, Any]:
    """Returns the changes, without the base's hyperparameters that another model does not have.

    Applies if a point changes the model's name but not the whole section.
    """
    name = changes.get("model.name", base.name)
    if name == base.name or "model" in changes:
        return changes
    try:
        options = model_class(name).options()
    except ValueError as error:
        raise InputError(f"point '{point}': {error}") from error
    kept = {key: value for key, value in base.hyperparameters.items() if key in options}
    return {"model": {"name": name, **kept}, **changes}


def _announce_left_out(points: tuple[Point, ...], base: Model) -> None:
    for name in dict.fromkeys(point.config.model.name for point in points if "model.name" in point.changes):
        absent = [key for key in base.hyperparameters if key not in model_class(name).options()]
        if absent:
            announce(f"{name} has no {', '.join(absent)}: left out for it")


def _check(path: pathlib.Path, file: SweepFile, points: tuple[Point, ...]) -> None:
    names = [point.name for point in points]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InputError(f"{path}: points: there are two of {', '.join(repeated)}; give them other names")
    if file.reference and file.reference not in names:
        raise InputError(f"{path}: reference: there is no point '{file.reference}'; there are {', '.join(names)}")
