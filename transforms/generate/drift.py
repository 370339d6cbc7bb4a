"""Daily logs whose preferences, popularity and ids drift at known rates."""

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

MOST_DAYS = 250  # limited by the block numbers of a log
FIRST_DAY = datetime.date(2026, 1, 1)


@dataclasses.dataclass(frozen=True)
class Drift:
    """Drift rates from one day to the next, as shares from 0 (no drift) to 1.

    Popularity and ids drift only in columns of hexadecimal ids without planted interactions, because a column with
    interactions must keep its two halves of equal mass.

    Args:
        preferences: Share of the variance of a value's main effect that is redrawn. With effect x and new draw n,
            `x' = sqrt(1 - preferences) x + sqrt(preferences) n`. The total strength of the effects is constant.
        popularity: Share of a column's ids that exchange their popularity ranks.
        ids: Share of a column's ids that are replaced by new ids with the same popularity rank.

    Raises:
        InputError: a rate is not between 0 and 1.
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
        """Parses `preferences=0.1,popularity=0.05,ids=0.02`; omitted rates are 0.

        Raises:
            InputError: the text does not have this form.
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
    """Raises InputError if the number of days is invalid or the layout has times of its own."""
    try:
        too_few = operator.index(days) < 1
    except TypeError:
        too_few = True
    if too_few or days > MOST_DAYS:
        raise InputError(f"days should be a whole number from 1 to {MOST_DAYS}. Received: {days!r}")
    if spec.with_id_and_hour:
        raise InputError(f"--drift: the hours of an {spec.name} log run through its days; use another --format")


def day_folder(folder: pathlib.Path, day: int) -> pathlib.Path:
    """Returns the folder of a day, numbered from 0."""
    return folder / f"day={FIRST_DAY + datetime.timedelta(days=day)}"


def worlds(spec: LogLayout, model: ClickModel, drift: Drift, days: int) -> Iterator["World"]:
    """Yields the World (ids and effects) of each day."""
    moving = [column for column in spec.columns if isinstance(column, Categorical) and _moves(column, spec, model)]
    ids = {column.name: np.arange(column.vocabulary, dtype=np.int64) for column in moving}
    for day in range(days):
        if day:
            ids = {column.name: _next(column, ids[column.name], drift, model.world, day) for column in moving}
        yield World(spec, model, drift, day, ids)


class World:
    """The ids and effects of a day.

    Attributes:
        hidden: The click model of the day.
        ids: The id at each popularity rank, int64 `[vocabulary]`, by column with drifting ids.
    """

    def __init__(self, spec: LogLayout, model: ClickModel, drift: Drift, day: int, ids: dict[str, np.ndarray]):
        self.ids = ids
        self.hidden = HiddenModel(spec, model, functools.partial(self._effects, model.world, drift.preferences, day))

    def _effects(self, world: int, rate: float, day: int, column: Column, key: str) -> np.ndarray:
        """Returns the effects of a column's codes, `[codes + 1]`, for the ids of this day."""
        codes = np.arange(column.codes + 1)
        known = self.ids.get(column.name)
        names = codes if known is None else np.concatenate([known[:HEAD_VALUES], codes[len(known[:HEAD_VALUES]) :]])
        effects = _uniform(key, names)
        for past in range(1, day + 1):
            effects = np.sqrt(1 - rate) * effects + np.sqrt(rate) * _uniform(f"{key}/{past}", names)
        return main_effects(column, effects)


def _uniform(key: str, values: np.ndarray) -> np.ndarray:
    """Returns a hash of each value as a number in [-1, 1)."""
    numbers: np.ndarray = hash_values(key, values) / 2.0**63 - 1.0
    return numbers


def _moves(column: Categorical, spec: LogLayout, model: ClickModel) -> bool:
    pairs = spec.pairs if model.pairs is None else model.pairs
    triples = spec.triples if model.triples is None else model.triples
    names = {name for term in (*pairs, *triples) for name in term}
    return column.name not in names and not column.as_number and not column.words


def _next(column: Categorical, ids: np.ndarray, drift: Drift, world: int, day: int) -> np.ndarray:
    """Returns the ids of the next day by popularity rank, some swapped and some replaced."""
    places = np.arange(column.vocabulary)
    following = ids.copy()
    key = f"{world}/{column.name}/{day}"
    order = _uniform(f"{key}/popularity", places)
    [chosen] = (order < 2 * drift.popularity - 1).nonzero()
    following[chosen] = ids[chosen[np.argsort(order[chosen], kind="stable")]]
    replaced = _uniform(f"{key}/ids", places) < 2 * drift.ids - 1
    following[replaced] = column.vocabulary * day + places[replaced]
    return following
