"""The known keys of a configuration, and the search for the nearest key to an unknown one."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import get_args, get_origin

import pydantic

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import ALIKE, nearest_name
from ctrpipe.pipeline.config.model import Model
from ctrpipe.pipeline.config.model_table import read_reference
from ctrpipe.pipeline.config.run_config import RunConfig

_VERY_ALIKE = 0.8  # similarity of two names, as ALIKE


class UnknownKeyError(InputError):
    """Raised for an unknown configuration key.

    Attributes:
        key: The dotted key.
        nearest: The most similar known key, dotted; None if there is none.
    """

    def __init__(self, message: str, key: str, nearest: str | None):
        super().__init__(message)
        self.key = key
        self.nearest = nearest


def nearest_key(key: str, model: str | None = None, own: Iterable[str] = ()) -> str | None:
    """Returns the known configuration key most similar to an unknown one; None if there is none.

    Tries in this order: a very similar name in the same section, a name there with which the unknown one begins, the
    same name in another section, a similar name in the same section, a similar name in any section.

    Args:
        key: The unknown key, dotted.
        model: Name of the model, whose hyperparameters are known keys of `model`; None if it is unknown.
        own: The hyperparameters of a user's own model.

    Example:
        >>> nearest_key("epochs"), nearest_key("training.epoch"), nearest_key("dropout", "deepfm")
        ('training.epochs', 'training.epochs', 'model.dropout')
    """
    known = (*known_keys(model), *(f"model.{name}" for name in own))
    section, _, name = key.rpartition(".")
    beside = [other for other in known if other.rpartition(".")[0] == section] if section else []
    return (
        _shortest(beside, _like(name, beside, _VERY_ALIKE))
        or _shortest(beside, [_last(other) for other in beside if name.startswith(_last(other))])
        or _shortest(known, [name])
        or _shortest(beside, _like(name, beside, ALIKE))
        or _shortest(known, _like(name, known, ALIKE))
    )


@functools.cache
def known_keys(model: str | None = None) -> tuple[str, ...]:
    """Returns all dotted keys, including sections, except keys that a user chooses (columns, tasks, steps).

    Args:
        model: As in `nearest_key`.
    """
    options = {each["name"]: tuple(each["options"]) for each in read_reference().models}
    return tuple(_below(RunConfig, "", options.get(model or "", ())))


def _below(section: type[pydantic.BaseModel], place: str, options: tuple[str, ...]) -> Iterator[str]:
    for name, field in section.model_fields.items():
        key = f"{place}.{name}" if place else name
        yield key
        for inner in _sections(field.annotation):
            yield from _below(inner, key, options)
    if section is Model and place == "model":
        yield from (f"{place}.{name}" for name in options)


def _sections(annotation: object) -> Iterator[type[pydantic.BaseModel]]:
    """Yields the sections that a key can have as its value, excluding sections inside lists and mappings."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        yield annotation
    elif get_origin(annotation) not in (list, dict, tuple):
        for inner in get_args(annotation):
            yield from _sections(inner)


def _shortest(known: Sequence[str], names: Sequence[str]) -> str | None:
    """Returns the least nested key whose last part is one of the names; None if there is none."""
    return min((key for key in known if _last(key) in names), key=lambda key: key.count("."), default=None)


def _like(name: str, keys: Sequence[str], alike: float) -> list[str]:
    near = nearest_name(name, [_last(key) for key in keys], alike)
    return [] if near is None else [near]


def _last(key: str) -> str:
    return key.rpartition(".")[2]
