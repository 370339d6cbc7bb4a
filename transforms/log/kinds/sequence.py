"""The kind `sequence`."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

import pydantic

from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess, usual_length
from ctrpipe.transforms.log.kinds.kind import Kind, Seen, WithVocabulary

MOST_VALUES = 100  # of one item


class ItemSequence(WithVocabulary):
    """A user's history, such as `50|172|133`: items in order, the newest last.

    The columns of one entry are aligned: values at the same position belong to the same event. Within a row, all
    columns must have the same number of values; an empty value is missing. A row without values is a user without
    history. The models of [histories](models.md#histories) read each item; every other model reads the history as one
    field, combined by `pooling`.

    Example:
        features:
          - {columns: [item, genre], kind: categorical}
          - {columns: [items, genres], kind: sequence, shared_with: [item, genre], max_length: 50}
    """

    kind: Literal["sequence"]
    """The kind of feature."""
    separator: str = pydantic.Field("|", min_length=1)
    """Separator between two values."""
    brackets: bool = False
    """Whether the log has lists in brackets, such as `['a', 'b']` of Python, `["a", "b"]` of JSON or `{a,b}`. Every
    reader of the log splits them; a request has the values with `separator` between them. A text without brackets is
    read as usual.
    """
    max_length: int = pydantic.Field(ge=1, examples=[50])
    """Maximum number of values per row; of a longer history the last values are kept."""
    shared_with: list[str | None] = pydantic.Field([], examples=[["item", "genre", None]])
    """Categorical column whose vocabulary and embeddings the values share; a list has one entry for each of `columns`.
    null or empty: the column has its own vocabulary. The values of both columns are counted for a shared vocabulary.
    The named column may also be a sequence with its own vocabulary: the words of a document and of a query can share
    one. A model of histories has no candidate then; `starspace` and `two_tower` read both sequences.
    """
    within: str | None = pydantic.Field(None, min_length=1, examples=[","])
    """Separator between several values of one item, as in `c1,c2|c3` for two items. Parquet and JSON may have lists of
    lists. null: an item has one value, or, where elements of the log's lists are lists or have `separator` in them, as
    many as its first rows show; a run says so.
    """
    values_per_item: dict[str, Annotated[int, pydantic.Field(ge=2, le=MOST_VALUES)]] = pydantic.Field(
        {}, examples=[{"categories": 3}]
    )
    """Maximum number of values of one item, by column, for the columns whose items have several; further values are
    ignored. A model of histories reads the mean of an item's embeddings, every other model pools all values. Such a
    column has its own vocabulary, or shares the vocabulary of another sequence. Needs `within`.
    """
    pooling: Literal["sum", "mean", "attention"] = "mean"
    """How models with one embedding per field combine the items: `sum` or `mean` of their embeddings, or `attention`:
    their mean, weighted by the softmax of their dot products with the embedding of the column in `shared_with`.
    """

    @pydantic.field_validator("shared_with", mode="before")
    @classmethod
    def _from_name(cls, value: object) -> Any:
        return [value] if isinstance(value, str) else value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "ItemSequence":
        if self.shared_with and len(self.shared_with) != len(self.columns):
            raise ValueError(
                f"shared_with has {len(self.shared_with)} entries for {len(self.columns)} columns; give one for each"
            )
        if self.shared_with and None not in self.shared_with:
            if (self.top_k, self.min_count, self.oov_buckets, self.whole_numbers) != (None, 1, 1, True):
                raise ValueError(
                    "top_k, min_count, oov_buckets and whole_numbers of a shared vocabulary belong to the column in "
                    "shared_with; move them there"
                )
        elif self.pooling == "attention":
            raise ValueError("pooling: attention needs shared_with, the column whose value attends to the sequence")
        return self

    @pydantic.model_validator(mode="after")
    def _items_of_several_values(self) -> "ItemSequence":
        if (self.within is None) != (not self.values_per_item):
            raise ValueError("within and values_per_item belong together; give both, or neither")
        if absent := [name for name in self.values_per_item if name not in self.columns]:
            raise ValueError(f"values_per_item: {absent[0]} is not one of columns; remove it")
        if self.within is not None and (self.within in self.separator or self.separator in self.within):
            raise ValueError(f"within: {self.within!r} and separator: {self.separator!r} must be different signs")
        return self

    def item_values(self, column: str) -> int:
        """Returns the maximum number of values of one item."""
        return self.values_per_item.get(column, 1)

    def inner_separator(self, column: str) -> str:
        return (self.within or "") if column in self.values_per_item else ""

    @property
    def in_brackets(self) -> bool:
        return self.brackets

    @property
    def list_separator(self) -> str | None:
        return self.separator

    @property
    def are_aligned(self) -> bool:
        return len(self.columns) > 1

    def has_vocabulary(self, column: str) -> bool:
        return self.owner_of(column) == column

    def only(self, column: str, whole_numbers: bool) -> Self:
        # The owner may be cut.
        alone: dict[str, Any] = {"columns": [column], "shared_with": None, "whole_numbers": whole_numbers}
        if column not in self.values_per_item:
            alone |= {"within": None, "values_per_item": {}}
        return self.model_copy(update=alone)

    def lends_vocabulary(self, column: str) -> bool:
        return self.has_vocabulary(column)

    def owner_of(self, column: str) -> str:
        owner = self.shared_with[self.columns.index(column)] if self.shared_with else None
        return owner or column

    def check_shared(self, features: Mapping[str, Kind]) -> None:
        for column in self.columns:
            owner = self.owner_of(column)
            if owner == column:
                continue
            if column in self.values_per_item and features.get(owner) and features[owner].is_single:
                raise ValueError(
                    f"features: {column} has several values per item, and {owner}, whose vocabulary it shares, has "
                    "one; give null in shared_with"
                )
            shared = features.get(owner)
            if shared is None or not shared.lends_vocabulary(owner):
                raise ValueError(
                    f"features: {column} has shared_with: {owner}, which is neither a categorical column nor a "
                    "sequence with its own vocabulary"
                )
            if self.pooling == "attention" and not shared.is_single:
                raise ValueError(
                    f"features: {column} has pooling: attention, which {owner}, a sequence, cannot ask for"
                )

    def slots(self, column: str) -> dict[str, int]:
        return {column: self.max_length * self.item_values(column)}

    def meaning(self, column: str) -> tuple[object, ...]:
        several = (self.item_values(column),) if column in self.values_per_item else ()
        return (self.kind, self.role, self.max_length, self.owner_of(column), self.pooling, *several)

    @classmethod
    def guess_nested(cls, column: ColumnSample, separator: str, within: str) -> Guess:
        """Returns the guess for a column of lists of lists, joined by two separators."""
        items = [[item for item in value.split(separator) if item] for value in column.present]
        length = usual_length(map(len, items))
        most = usual_length(len(item.split(within)) for row in items for item in row)
        settings = {"kind": "sequence", "separator": separator, "max_length": length, "within": within}
        comment = (
            f"lists of lists, {column.seen}: a history of items with several values each; 95% of the rows have up to "
            f"{length} items, 95% of the items up to {most}"
        )
        return Guess({**settings, "values_per_item": {column.name: most}}, comment)

    def notes(self, column: str, seen: Seen) -> Iterator[str]:
        yield from seen.list_notes(column, self.separator, self.brackets)
