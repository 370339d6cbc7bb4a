"""Logs of several days on which preferences, popularity and ids move at known rates."""

import dataclasses
import datetime
import functools
import operator
import pathlib
from collections.abc import Iterator

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.hashing import hash_values
from ctrpipe.transforms.generate.click_model import ClickModel, HiddenModel, main_effects
from ctrpipe.transforms.generate.columns import HEAD_VALUES, Categorical, Column
from ctrpipe.transforms.generate.formats import LogLayout

MOST_DAYS = 250  # for which a log's blocks have numbers
FIRST_DAY = datetime.date(2026, 1, 1)


@dataclasses.dataclass(frozen=True)
class Drift:
    """What moves from one day to the next. The rates are shares, from 0, where nothing moves, to 1.

    Only columns without planted interactions have ids that move: in the others the two halves of equal mass stay.

    Args:
        preferences: Of the variance of a value's main effect the share that is drawn anew: with x the effect and n a
            new draw, `x' = sqrt(1 - preferences) x + sqrt(preferences) n`. The strength of all effects stays.
        popularity: Of a column's ids the share that change places in the order of popularity.
        ids: Of a column's ids the share that are replaced by new ones, which take their place in this order.

    Raises:
        InputError: a rate is not from 0 to 1.
    """

    preferences: float = 0.0
    popularity: float = 0.0
    ids: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            rate = getattr(self, field.name)
            if not 0.0 <= rate <= 1.0:
                raise InputError(f"drift: {field.name} should be from 0 to 1. Received: {rate!r}")

    @classmethod
    def from_text(cls, text: str) -> "Drift":
        """Reads `preferences=0.1,popularity=0.05,ids=0.02`, of which each may be left out.

        Raises:
            InputError: the text is none of this kind.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        rates: dict[str, float] = {}
        for part in filter(None, text.split(",")):
            name, equals, value = part.partition("=")
            try:
                if name not in names or not equals or name in rates:
                    raise ValueError
                rates[name] = float(value)
            except ValueError:
                raise InputError(
                    f"--drift {text}: expected rates as preferences=0.1,popularity=0.05,ids=0.02, each once at most"
                ) from None
        return cls(**rates)


def check_days(days: int, spec: LogLayout) -> None:
    """Raises InputError where a layout's days cannot be told apart, or there are none."""
    try:
        too_few = operator.index(days) < 1
    except TypeError:
        too_few = True
    if too_few or days > MOST_DAYS:
        raise InputError(f"days should be a whole number from 1 to {MOST_DAYS}. Received: {days!r}")
    if spec.with_id_and_hour:
        raise InputError(f"--drift: the hours of an {spec.name} log run through its days; use another --format")


def day_folder(folder: pathlib.Path, day: int) -> pathlib.Path:
    """Returns the folder of a day, counted from 0."""
    return folder / f"day={FIRST_DAY + datetime.timedelta(days=day)}"


def worlds(spec: LogLayout, model: ClickModel, drift: Drift, days: int) -> Iterator["World"]:
    """Yields the ids and effects of each day in turn."""
    moving = [column for column in spec.columns if isinstance(column, Categorical) and _moves(column, spec, model)]
    ids = {column.name: np.arange(column.vocabulary, dtype=np.int64) for column in moving}
    for day in range(days):
        if day:
            ids = {column.name: _next(column, ids[column.name], drift, model.world, day) for column in moving}
        yield World(spec, model, drift, day, ids)


class World:
    """A day's ids and effects.

    Attributes:
        hidden: The click model of the day.
        ids: By column whose ids move, the id at each place in the order of popularity, int64 `[vocabulary]`.
    """

    def __init__(self, spec: LogLayout, model: ClickModel, drift: Drift, day: int, ids: dict[str, np.ndarray]):
        self.ids = ids
        self.hidden = HiddenModel(spec, model, functools.partial(self._effects, model.world, drift.preferences, day))

    def _effects(self, world: int, rate: float, day: int, column: Column, key: str) -> np.ndarray:
        """Returns the effects of a column's codes, `[codes + 1]`: of the ids that have them today."""
        codes = np.arange(column.codes + 1)
        known = self.ids.get(column.name)
        names = codes if known is None else np.concatenate([known[:HEAD_VALUES], codes[len(known[:HEAD_VALUES]) :]])
        effects = _uniform(key, names)
        for past in range(1, day + 1):
            effects = np.sqrt(1 - rate) * effects + np.sqrt(rate) * _uniform(f"{key}/{past}", names)
        return main_effects(column, effects)


def _uniform(key: str, values: np.ndarray) -> np.ndarray:
    """Returns a number in [-1, 1) for each value, by its hash."""
    numbers: np.ndarray = hash_values(key, values) / 2.0**63 - 1.0
    return numbers


def _moves(column: Categorical, spec: LogLayout, model: ClickModel) -> bool:
    pairs = spec.pairs if model.pairs is None else model.pairs
    triples = spec.triples if model.triples is None else model.triples
    names = {name for term in (*pairs, *triples) for name in term}
    return column.name not in names and not column.as_number and not column.words


def _next(column: Categorical, ids: np.ndarray, drift: Drift, world: int, day: int) -> np.ndarray:
    """Returns the ids of the next day by their place: some have changed places, and some are new."""
    places = np.arange(column.vocabulary)
    following = ids.copy()
    key = f"{world}/{column.name}/{day}"
    order = _uniform(f"{key}/popularity", places)
    [chosen] = (order < 2 * drift.popularity - 1).nonzero()
    following[chosen] = ids[chosen[np.argsort(order[chosen], kind="stable")]]
    replaced = _uniform(f"{key}/ids", places) < 2 * drift.ids - 1
    following[replaced] = column.vocabulary * day + places[replaced]
    return following
