"""The kind `multivalent`."""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import pydantic

from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess, usual_length
from ctrpipe.transforms.log.kinds.kind import Seen, WithVocabulary

_SEPARATORS = "|,; "  # that a draft tries
_SEVERAL = 0.2  # of the rows, above which have several values in a column of lists
_WEIGHTED = re.compile(r"[^:=]+[:=][-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_FEWEST_PAIRS = 30  # different values with a weight, before elements are taken for such
_FEWEST_TEXTS = 50  # different texts with blanks; fewer ones are names, as those of campaigns and browsers
_TEXT_LENGTH = 24  # characters of a value that is rather a text than a name


class Multivalent(WithVocabulary):
    """Several values in one string, such as `615|1545|75`. The field's embedding is the sum or mean of the values'
    embeddings.

    With `weights`, each value may have a weight, as in `sports:0.5|news:0.1`, and the embedding is the weighted sum or
    mean. Parquet maps and JSON objects are read as weighted values.

    Example:
        features:
          - {columns: [interests], kind: multivalent, max_length: 10, top_k: 50000}
          - {columns: [topics], kind: multivalent, max_length: 10, weights: ":", pooling: mean}
    """

    kind: Literal["multivalent"]
    """The kind of feature."""
    separator: str = pydantic.Field("|", min_length=1)
    """Separator between two values."""
    brackets: bool = False
    """Whether the log has lists in brackets, such as `['a', 'b']` of Python, `["a", "b"]` of JSON or `{a,b}`. Every
    reader of the log splits them; a request has the values with `separator` between them. A text without brackets is
    read as usual.
    """
    max_length: int = pydantic.Field(ge=1, examples=[10])
    """Maximum number of values; further values of the string are ignored."""
    pooling: Literal["sum", "mean"] = "sum"
    """Whether the field is the sum of its values' embeddings or their mean: with `weights`, the sum of w e, or that sum
    divided by the sum of |w|. The linear part of a model weights its values' weights likewise.
    """
    weights: str | None = pydantic.Field(None, min_length=1, examples=[":"])
    """What stands between a value and its weight, where it occurs last in the value. A value without it has the weight
    1, and a row with a weight that is no finite number is malformed. A weight is first clipped to 1e6 and to the range
    of the training rows' weights, widened on each side by its own width, as numbers are. null: values have no weights.
    """

    @pydantic.model_validator(mode="after")
    def _parted(self) -> "Multivalent":
        if self.weights is not None and (self.weights in self.separator or self.separator in self.weights):
            raise ValueError(f"weights: {self.weights!r} and separator: {self.separator!r} must be different signs")
        return self

    @property
    def weight_separator(self) -> str:
        return self.weights or ""

    @property
    def is_weighted(self) -> bool:
        return self.weights is not None or self.pooling == "mean"  # a mean is a sum with weights

    @property
    def measured(self) -> Literal["nothing", "moments"]:
        return "nothing" if self.weights is None else "moments"

    @property
    def in_brackets(self) -> bool:
        return self.brackets

    @property
    def list_separator(self) -> str | None:
        return self.separator

    def has_vocabulary(self, column: str) -> bool:
        return True

    def slots(self, column: str) -> dict[str, int]:
        return {column: self.max_length}

    def meaning(self, column: str) -> tuple[object, ...]:
        return (self.kind, self.role, self.max_length, column, self.pooling, self.weights is not None)

    @classmethod
    def guess(cls, column: ColumnSample) -> Guess | None:
        if column.is_list:
            return _of_lists(column, "|", "maps" if column.weights else "lists", "")
        if column.numbers:
            return None
        if separator := _separator(column.present):
            return _of_lists(column, separator, f"several values parted by {separator!r}", "")
        mean_length = sum(map(len, column.present)) / len(column.present)
        if column.never_repeats and mean_length > _TEXT_LENGTH and " " in column.present[0]:
            return _of_lists(column, " ", "texts, read as words", "; kind: text is for models with an encoder")
        return None

    def notes(self, column: str, seen: Seen) -> Iterator[str]:
        yield from seen.list_notes(column, self.separator, self.brackets)
        if self.weights and not seen.holds(self.weights):
            yield f"{column}: no value has a weight; is {self.weights!r} what stands before it?"


def weighted_pair(elements: Collection[str]) -> str | None:
    """Returns an element such as `sports:0.25` if nearly all distinct elements consist of a value and a number."""
    pairs = {element for element in elements if _WEIGHTED.fullmatch(element)}
    fractions = [element for element in pairs if "." in element]
    names = len({re.split("[:=]", pair)[0] for pair in pairs})
    others = len(elements) - len(pairs)
    if len(pairs) < _FEWEST_PAIRS or others > 0.05 * names or len(fractions) < 0.5 * len(pairs):
        return None
    return min(fractions)


def _of_lists(column: ColumnSample, separator: str, what: str, advice: str) -> Guess:
    elements = {element for value in column.present for element in value.split(separator) if element}
    weights = {}
    if column.weights:
        weights = {"weights": column.weights}
        what += " of values to their weights"
    elif pair := weighted_pair(elements):
        weights = {"weights": ":" if ":" in pair else "="}
        what += " with weights"
    length = usual_length(len([token for token in value.split(separator) if token]) for value in column.present)
    settings = {"kind": "multivalent", "separator": separator, "max_length": length, "top_k": 100_000, **weights}
    return Guess(settings, f"{what}, {column.seen}{advice}; 95% of the rows have up to {length}")


def _separator(present: Sequence[str]) -> str | None:
    """Returns the separator of a list column; None for single values.

    In a list column, many rows have several values, and the values repeat.
    """
    for separator in _SEPARATORS:
        if sum(separator in value for value in present) <= _SEVERAL * len(present):
            continue
        if separator == " " and len(set(present)) < _FEWEST_TEXTS and len(present) > _FEWEST_TEXTS:
            continue
        tokens = [[token for token in value.split(separator) if token] for value in present]
        several = sum(len(row) > 1 for row in tokens)
        different = {token for row in tokens for token in row}
        pair = weighted_pair(different)
        if pair:
            different = {re.split("[:=]", token)[0] for token in different}
        total = sum(map(len, tokens))
        lengths = {len(row) for row in tokens}
        if several > _SEVERAL * len(present) and (pair or len(lengths) > 2) and len(different) < 0.5 * total:
            return separator
    return None
