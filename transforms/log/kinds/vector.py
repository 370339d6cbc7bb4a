"""The kind `vector`."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import pydantic

from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess
from ctrpipe.transforms.log.kinds.kind import Columns, Seen
from ctrpipe.transforms.log.words import NUMBER

MOST_ELEMENTS = 1 << 14
_SEPARATORS = "|,; "  # that a draft tries
_FEWEST = 4  # elements of a drafted vector in text without brackets: two or three numbers may be anything


class Vector(Columns):
    """A vector of numbers, such as the embedding of a text or an image that another model computed.

    Each row holds one vector: a list of numbers in Parquet and JSON; text with a separator in `csv` and `tsv`, with or
    without square brackets. A model that embeds its dense features projects the whole vector to one embedding; every
    other model reads the elements directly. A request holds a list of `length` numbers. An explanation has one value
    for the column.

    A missing vector is 0 after the transform. A row is malformed if its vector has another length or an element that is
    not a finite number. A vector with only NaN elements is missing. Every element is clipped to the range of all
    elements of the training rows, widened on each side by its own width.

    Example:
        features:
          - {columns: [title_vector, image_vector], kind: vector, length: 64, transform: unit}
          - {columns: [user_vector], kind: vector, length: 16, transform: standardize, separator: " "}
    """

    usual_missing: ClassVar[bool] = True

    kind: Literal["vector"]
    """The kind of feature."""
    length: int = pydantic.Field(ge=1, le=MOST_ELEMENTS, examples=[64])
    """Number of elements of each vector."""
    transform: Literal["none", "unit", "standardize"] = "none"
    """`none` takes the elements as they are. `unit` scales each vector to length 1; the vector 0 stays 0. `standardize`
    subtracts the mean of all elements of the training rows and divides by their standard deviation: one pair of numbers
    for the whole column, which keeps the order of distances between vectors.
    """
    separator: str = pydantic.Field("|", min_length=1, examples=[" ", ","])
    """Separator between two elements in text. With `" "`, any white space."""

    @property
    def is_dense(self) -> bool:
        return True

    @property
    def vector_length(self) -> int:
        return self.length

    @property
    def measured(self) -> Literal["nothing", "moments", "quantiles"]:
        return "moments"

    @property
    def list_separator(self) -> str | None:
        return self.separator

    def slots(self, column: str) -> dict[str, int]:
        return {}

    def meaning(self, column: str) -> tuple[object, ...]:
        return (self.kind, self.role, self.length, self.transform)

    @classmethod
    def guess(cls, column: ColumnSample) -> Guess | None:
        separators: Sequence[str] = "|" if column.is_list else _SEPARATORS
        for separator in separators:
            if length := _length(column, separator):
                written = {} if separator == "|" else {"separator": separator}
                settings = {"kind": "vector", "length": length, **written}
                return Guess(
                    settings, f"vectors of {length} numbers, {column.seen}; or transform: unit, or standardize?"
                )
        return None

    def notes(self, column: str, seen: Seen) -> Iterator[str]:
        if seen.present < seen.rows / 100:
            yield f"{column}: missing in {1 - seen.present / seen.rows:.1%} of the first {seen.rows:,} rows"


def elements_of(text: str, separator: str) -> list[str]:
    """Returns the elements of a vector in a text file."""
    inner = text.strip().removeprefix("[").removesuffix("]")
    return inner.split() if separator == " " else [element.strip() for element in inner.split(separator)]


def _length(column: ColumnSample, separator: str) -> int | None:
    """Returns the common length of the column's vectors with this separator; None for other values.

    Vectors have the same length in all rows, and elements with decimals. Lists of ids have neither.
    """
    length = len(elements_of(column.present[0], separator))
    if length < 2:  # most columns
        return None
    is_list = column.is_list or all(text.lstrip().startswith("[") for text in column.present)
    if length < _FEWEST and not is_list:
        return None
    rows = [elements_of(text, separator) for text in column.present]
    if any(len(row) != length for row in rows):
        return None
    elements = [element for row in rows for element in row]
    if not all(map(NUMBER.fullmatch, elements)):
        return None
    return length if any("." in element or "e" in element.lower() for element in elements) else None
