"""The derived column `lookup`."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import pydantic

from ctrpipe.transforms.log.derived.derived import Derived, Source, kind_of
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.kinds.multivalent import Multivalent


class Lookup(Derived):
    """The number that the row's map holds for the value of another column, such as a user's affinity to a category.

    The map is a column of maps in Parquet, of objects in JSON, or of text such as `sports:0.5|news:0.1`. The number is
    missing if the map lacks the value. The feature that reads it has all settings of `kind: numeric`.

    Example:
        derived: {affinity: {kind: lookup, key: category, map: affinities}}
        features:
          - {columns: [category], kind: categorical}
          - {columns: [affinity], kind: numeric, transform: standardize}
    """

    makes: ClassVar[tuple[str, ...]] = ("numeric",)

    kind: Literal["lookup"]
    """The kind of derived column."""
    key: str = pydantic.Field(min_length=1, examples=["category"])
    """Column whose value is looked up: a feature of kind categorical, or a column that no feature reads."""
    map: str = pydantic.Field(min_length=1, examples=["affinities"])
    """Column of the maps: a feature of kind multivalent with `weights`, or a column that no feature reads. If a map has
    a key twice, the first number counts. Numbers beyond 1e6 count as 1e6.
    """
    separator: str = pydantic.Field("|", min_length=1)
    """Separator between two entries of a map in text. A feature of the map column has its own."""
    weights: str = pydantic.Field(":", min_length=1)
    """Separator between a key and its number in text."""

    @pydantic.model_validator(mode="after")
    def _two_columns(self) -> "Lookup":
        if self.key == self.map:
            raise ValueError(f"key and map are both {self.key}; name two columns")
        self.sources()
        return self

    def sources(self) -> dict[str, Source]:
        signs = {"separator": self.separator, "weights": self.weights}
        entries = {"kind": "multivalent", "columns": [self.map], "max_length": 1, **signs}
        key = Categorical(kind="categorical", columns=[self.key])
        return {self.key: key, self.map: Multivalent.model_validate(entries)}

    def faults(self, features: Mapping[str, Kind]) -> Iterator[str]:
        key, entries = features[self.key], features[self.map]
        if kind_of(key) != "categorical":
            yield f"{self.key} is of kind {kind_of(key)}; a key is of kind categorical"
        if not entries.weight_separator:
            yield f"{self.map} is of kind {kind_of(entries)} without weights, no map"
        elif (entries.list_separator, entries.weight_separator) != (self.separator, self.weights):
            yield (
                f"the feature {self.map} has separator: {entries.list_separator!r} and weights: "
                f"{entries.weight_separator!r}; write the same here"
            )
