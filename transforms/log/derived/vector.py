"""The derived column `vector`."""

from typing import Any, ClassVar, Literal

import pydantic

from ctrpipe.transforms.log.derived.derived import Derived, Source
from ctrpipe.transforms.log.kinds.numeric import Numeric
from ctrpipe.transforms.log.section import ColumnNames


class VectorOf(Derived):
    """A vector built from numeric columns, such as an embedding stored in 64 columns.

    If an element is missing, the whole vector is missing. The feature that reads it is of `kind: vector`, and its
    `length` is the number of columns.

    Example:
        derived: {title: {kind: vector, of: [t1..t8]}}
        features: [{columns: [title], kind: vector, length: 8, transform: unit}]
    """

    makes: ClassVar[tuple[str, ...]] = ("vector",)

    kind: Literal["vector"]
    """The kind of derived column."""
    of: ColumnNames = pydantic.Field(min_length=1, examples=[["t1..t8"]])
    """The columns of the elements, in order; `t1..t8` expands to eight names."""

    @pydantic.field_validator("of")
    @classmethod
    def _different(cls, names: list[str]) -> list[str]:
        if len(set(names)) < len(names):
            raise ValueError("a column is named twice")
        return names

    def sources(self) -> dict[str, Source]:
        return {name: Numeric(kind="numeric", columns=[name], transform="standardize") for name in self.of}

    def does_not_fit(self, column: str, feature: Any) -> str:
        if (fault := super().does_not_fit(column, feature)) or feature.vector_length == len(self.of):
            return fault
        return f"{column} has length: {feature.vector_length}, and its vectors have {len(self.of)} elements"
