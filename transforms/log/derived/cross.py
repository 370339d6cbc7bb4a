"""The derived column `cross`."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

import pydantic

from ctrpipe.transforms.log.derived.derived import Derived, Source, kind_of
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.section import ColumnNames

BETWEEN = "\x1f"  # the unit separator of ASCII, which values do not have: no two combinations are the same text


class Cross(Derived):
    """The combination of several columns' values as one category, for interactions that a linear model cannot see.

    If one of the values is missing, the combination is missing. The feature that reads it has all settings of `kind:
    categorical`, such as `transform: hash`.

    Example:
        derived: {site_ad: {kind: cross, of: [site, ad]}}
        features:
          - {columns: [site, ad], kind: categorical}
          - {columns: [site_ad], kind: categorical, transform: hash, buckets: 100000}
    """

    makes: ClassVar[tuple[str, ...]] = ("categorical",)

    kind: Literal["cross"]
    """The kind of derived column."""
    of: ColumnNames = pydantic.Field(min_length=2, examples=[["site", "ad"]])
    """The columns, at least two: features of kind categorical, or columns of single values that no feature reads."""

    @pydantic.field_validator("of")
    @classmethod
    def _different(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError(f"a column is named twice: {', '.join(names)}")
        return names

    def sources(self) -> dict[str, Source]:
        return {name: Categorical(kind="categorical", columns=[name]) for name in self.of}

    def faults(self, features: Mapping[str, Kind]) -> Iterator[str]:
        for name in self.of:
            if kind_of(features[name]) != "categorical":
                yield f"{name} is of kind {kind_of(features[name])}; a cross is of columns of kind categorical"
