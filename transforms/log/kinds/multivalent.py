"""The kind `multivalent`."""

from collections.abc import Iterator, Sequence
from typing import Literal

import pydantic

from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess
from ctrpipe.transforms.log.kinds.kind import Seen, WithVocabulary

_SEPARATORS = "|,; "  # that a draft tries
_TEXT_LENGTH = 24  # characters of a value that is rather a text than a name


class Multivalent(WithVocabulary):
    """Several values in one string, such as `615|1545|75`. The field's embedding is the sum of their embeddings.

    Example:
        features: [{columns: [interests], kind: multivalent, max_length: 10, top_k: 50000}]
    """

    kind: Literal["multivalent"]
    """The kind of feature."""
    separator: str = pydantic.Field("|", min_length=1)
    """Separator between two values."""
    max_length: int = pydantic.Field(ge=1, examples=[10])
    """Maximum number of values; further values of the string are ignored."""

    @property
    def list_separator(self) -> str | None:
        return self.separator

    def has_vocabulary(self, column: str) -> bool:
        return True

    def slots(self, column: str) -> dict[str, int]:
        return {column: self.max_length}

    def meaning(self, column: str) -> tuple[object, ...]:
        return (self.kind, self.role, self.max_length, column, "sum")

    @classmethod
    def guess(cls, column: ColumnSample) -> Guess | None:
        if column.is_list:
            return _of_lists(column, "|", "lists", "")
        if column.numbers:
            return None
        if separator := _separator(column.present):
            return _of_lists(column, separator, f"several values parted by {separator!r}", "")
        mean_length = sum(map(len, column.present)) / len(column.present)
        if column.never_repeats and mean_length > _TEXT_LENGTH and " " in column.present[0]:
            return _of_lists(column, " ", "texts, read as words", "; kind: text is for models with an encoder")
        return None

    def notes(self, column: str, seen: Seen) -> Iterator[str]:
        yield from seen.list_notes(column, self.separator)


def _of_lists(column: ColumnSample, separator: str, what: str, advice: str) -> Guess:
    lengths = sorted(len([token for token in value.split(separator) if token]) for value in column.present)
    length = max(2, min(50, lengths[int(0.95 * (len(lengths) - 1))]))
    settings = {"kind": "multivalent", "separator": separator, "max_length": length, "top_k": 100_000}
    return Guess(settings, f"{what}, {column.seen}{advice}; 95% of the rows have up to {length}")


def _separator(present: Sequence[str]) -> str | None:
    """Returns the separator of a list column; None for single values.

    In a list column, many rows have several values, and the values repeat.
    """
    for separator in _SEPARATORS:
        tokens = [[token for token in value.split(separator) if token] for value in present]
        several = sum(len(row) > 1 for row in tokens)
        different = {token for row in tokens for token in row}
        total = sum(map(len, tokens))
        lengths = {len(row) for row in tokens}
        if several > 0.2 * len(present) and len(lengths) > 2 and len(different) < 0.5 * total:
            return separator
    return None
