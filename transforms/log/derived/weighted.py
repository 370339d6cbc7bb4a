"""The derived column `weighted`."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

import pydantic

from ctrpipe.transforms.log.derived.derived import Derived, Source, kind_of
from ctrpipe.transforms.log.kinds.kind import Kind
from ctrpipe.transforms.log.kinds.multivalent import Multivalent

BEFORE = ":"  # what stands between a value and its weight


class WeightedLists(Derived):
    """A list of values with weights from a list in another column: `a|b` and `0.5|0.1` become `a:0.5|b:0.1`.

    A row is malformed if its two lists differ in length, or if a weight is not a finite number. In a request, a value
    without a weight has the weight 1. The feature that reads it is of `kind: multivalent` with `weights: ":"` and the
    same `separator`.

    Example:
        derived: {weighted_tags: {kind: weighted, values: tags, weights: tag_weights}}
        features: [{columns: [weighted_tags], kind: multivalent, max_length: 10, weights: ":", pooling: mean}]
    """

    makes: ClassVar[tuple[str, ...]] = ("multivalent",)

    kind: Literal["weighted"]
    """The kind of derived column."""
    values: str = pydantic.Field(min_length=1, examples=["tags"])
    """Column of the values: a feature of kind multivalent without weights, or a column that no feature reads."""
    weights: str = pydantic.Field(min_length=1, examples=["tag_weights"])
    """Column of the weights, which no feature reads."""
    separator: str = pydantic.Field("|", min_length=1)
    """Separator between two values, and between two weights, in text. Parquet and JSON have lists."""

    @pydantic.model_validator(mode="after")
    def _two_columns(self) -> "WeightedLists":
        if self.values == self.weights:
            raise ValueError(f"values and weights are both {self.values}; name two columns")
        if BEFORE in self.separator:
            raise ValueError(f"separator: {self.separator!r} is the character before a weight; choose another")
        return self

    @property
    def aligned(self) -> tuple[str, str]:
        """The source columns whose lists must have equal lengths; the second one holds numbers."""
        return (self.values, self.weights)

    def sources(self) -> dict[str, Source]:
        alike = {"kind": "multivalent", "separator": self.separator, "max_length": 1}
        values = Multivalent.model_validate({**alike, "columns": [self.values]})
        weights = Multivalent.model_validate({**alike, "columns": [self.weights], "whole_numbers": False})
        return {self.values: values, self.weights: weights}

    def faults(self, features: Mapping[str, Kind]) -> Iterator[str]:
        for name in self.sources():
            feature = features[name]
            if kind_of(feature) != "multivalent" or feature.weight_separator:
                yield f"{name} is of kind {kind_of(feature)}, no list of kind multivalent without weights"
            elif feature.list_separator != self.separator:
                yield f"the feature {name} has separator: {feature.list_separator!r}; write the same here"

    def does_not_fit(self, column: str, feature: Any) -> str:
        if fault := super().does_not_fit(column, feature):
            return fault
        if (feature.list_separator, feature.weight_separator) != (self.separator, BEFORE):
            return f"{column} needs separator: {self.separator!r} and weights: {BEFORE!r}"
        return ""
