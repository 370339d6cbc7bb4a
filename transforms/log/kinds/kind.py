"""The base class of all kinds of features: the common keys, and the defaults of a kind's methods."""

import abc
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Literal, Self

import pydantic

from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess
from ctrpipe.transforms.log.section import ColumnNames, Section
from ctrpipe.transforms.log.written import Written

FEW = 100  # minimum of present values for some notes


@dataclasses.dataclass(frozen=True)
class Seen:
    """The values of a column in the first rows of a log.

    Attributes:
        rows: Number of rows.
        present: Number of rows with a value, at least one.
        distinct: Number of distinct values.
        most: Number of rows with the most frequent value.
        holds: Whether any value contains a text.
    """

    rows: int
    present: int
    distinct: int
    most: int
    holds: Callable[[str], bool]

    def list_notes(self, column: str, separator: str, brackets: bool) -> Iterator[str]:
        """Yields possible mistakes in the separator of a list column."""
        if not brackets and self.present > FEW and any(map(self.holds, ("['", '["'))):
            yield f"{column}: values begin with brackets, which are parts of them; set brackets: true to read lists"
        if self.present > FEW and not self.holds(separator):
            yield f"{column}: no row has two values; is {separator!r} what stands between them?"


class Kind(Section, abc.ABC):
    """A kind of features: its keys and its properties, with defaults that a subclass overrides."""

    is_number: ClassVar[bool] = False
    """Whether the columns are read, served and sent as float32. All others are strings."""
    usual_missing: ClassVar[bool] = False
    """Whether NULL, NaN and similar words are missing values, unless the configuration lists other ones."""

    @property
    def is_position(self) -> bool:
        """Whether the columns have the role `position`."""
        return False

    @property
    def is_item(self) -> bool:
        """Whether the columns have the role `item`."""
        return False

    @property
    def is_dense(self) -> bool:
        """Whether each column is a dense feature."""
        return False

    @property
    def is_embedded(self) -> bool:
        """Whether the model embeds each column's number, as it embeds a field."""
        return False

    @property
    def vector_length(self) -> int:
        """The number of elements of each column's vectors; 0 for other values."""
        return 0

    @property
    def dense_width(self) -> int:
        """The number of columns of `dense` that belong to each column; 0 without a dense feature."""
        return (self.vector_length or 1) if self.is_dense else 0

    @property
    def is_single(self) -> bool:
        """Whether each column is one field with one id per row."""
        return False

    @property
    def measured(self) -> Literal["nothing", "moments", "quantiles"]:
        """The statistics of the training rows that the transform uses. Moments include the range for clipping."""
        return "nothing"

    @property
    def scale(self) -> str:
        """The scale that the transform divides by, which extreme values stretch; "" if there is none."""
        return ""

    @property
    def list_separator(self) -> str | None:
        """The separator between the elements of a value that may hold a list; None for single values."""
        return None

    @property
    def in_brackets(self) -> bool:
        """Whether the column's text contains lists in brackets."""
        return False

    def inner_separator(self, column: str) -> str:
        """Returns the separator between the values of one list element; "" if an element is one value."""
        return ""

    @property
    def weight_separator(self) -> str:
        """The separator between an element of a list and its weight; "" if elements have no weights."""
        return ""

    @property
    def is_weighted(self) -> bool:
        """Whether the slots of the columns' fields have weights."""
        return False

    @property
    def are_aligned(self) -> bool:
        """Whether a row's lists in all columns have the same length, because they describe the same items."""
        return False

    @property
    def time_format(self) -> str | None:
        """The format of the columns' times; None for other values."""
        return None

    @property
    def number_form(self) -> Written | None:
        """The written form of the columns' numbers, if it differs from 1234.5."""
        return None

    @property
    def unknown_ids(self) -> int:
        """Number of ids shared by out-of-vocabulary values."""
        return 1

    @property
    def counts_documents(self) -> bool:
        """Whether the vocabulary needs the number of values that contain each token."""
        return False

    @property
    def drop_rate(self) -> float:
        """Share of the training rows' values that become missing values."""
        return 0.0

    @property
    def reads_whole_numbers(self) -> bool:
        """Whether the text 123.0 equals the value 123. A column with a shared vocabulary follows the vocabulary's
        owner.
        """
        return False

    @property
    def does_not_take_derived(self) -> str:
        """Why the columns cannot be derived columns; "" if they can."""
        return "the log's own values are dropped by missing_rate; remove it" if self.drop_rate else ""

    def has_vocabulary(self, column: str) -> bool:
        """Returns whether the column has its own vocabulary, built from the training rows."""
        return False

    def owner_of(self, column: str) -> str:
        """Returns the column whose vocabulary contains the column's values: the column itself unless it is shared."""
        return column

    def only(self, column: str, whole_numbers: bool) -> Self:
        """Returns the feature reduced to one of its columns, for reading rows that lack other columns.

        Args:
            column: The column.
            whole_numbers: Whether the text 123.0 equals the value 123 in the column.
        """
        return self.model_copy(update={"columns": [column]})

    def lends_vocabulary(self, column: str) -> bool:
        """Returns whether a sequence may share the column's vocabulary."""
        return False

    def check_shared(self, features: "Mapping[str, Kind]") -> None:
        """Checks the columns whose vocabularies this feature shares.

        Args:
            features: The feature of each column of the log.

        Raises:
            ValueError: a shared column does not exist or does not lend its vocabulary to this feature.
        """

    @abc.abstractmethod
    def slots(self, column: str) -> dict[str, int]:
        """Returns the names of the column's fields, in the order of their slots in `ids`, each with their number."""

    @abc.abstractmethod
    def meaning(self, column: str) -> tuple[object, ...]:
        """Returns the settings that define the column's ids and numbers, without anything learned from rows."""

    @classmethod
    def guess(cls, column: ColumnSample) -> Guess | None:
        """Returns the settings that a draft gives to a column; None if the column does not look like this kind."""
        return None

    def notes(self, column: str, seen: Seen) -> Iterator[str]:
        """Yields possible mistakes in the column's configuration, by the first rows of a log."""
        yield from ()


class Columns(Kind):
    columns: ColumnNames = pydantic.Field(min_length=1, examples=[["I1..I13"], ["device", "shop"]])
    """Columns of the log that share these settings; `I1..I13` expands to thirteen names."""
    role: Literal["feature", "position", "item"] = "feature"
    """`position`: the place where an ad was shown, which is unknown at serving time; `serving.position` may set one
    value for every request. `item`: the columns describe the candidate, like every column that `shared_with` names.
    `two_tower` and `starspace` compute one vector from the candidate's columns and one from all others. A request of
    many candidates (`serving_candidates`) has one value of these columns for each candidate, and of all other columns
    one value.
    """

    @property
    def is_position(self) -> bool:
        return self.role == "position"

    @property
    def is_item(self) -> bool:
        return self.role == "item"


class WithVocabulary(Columns):
    """Settings of a vocabulary. Each of its values has its own id; all other values share the out-of-vocabulary ids."""

    top_k: int | None = pydantic.Field(None, ge=1, examples=[500_000])
    """Maximum size of the vocabulary, which keeps the most frequent values of the training rows. null: no limit."""
    min_count: int = pydantic.Field(1, ge=1)
    """Values that occur less often than this in the training rows are not in the vocabulary."""
    oov_buckets: int = pydantic.Field(1, ge=1)
    """Number of out-of-vocabulary ids. A hash of the value selects one of them."""
    whole_numbers: bool = True
    """Whether the text 123.0 is the same value as 123, in the log and in requests. Programs convert ids to
    floating-point numbers; pandas does if an id is missing. 123.0 as a number of Parquet or JSON is always 123. A
    floating-point number beyond 2^53 (2^24 in 32 bits) is not an exact id and makes its row malformed. A number that is
    not whole is the shortest text that parses to the same number: 0.1, 1e-05. If the number fits into 32 bits, the text
    is the shortest for 32 bits: 0.1 of a float32 column stays 0.1 if a program widens it to 64 bits. false: 123.0 is
    another value than 123, and no number makes its row malformed.
    """

    @property
    def unknown_ids(self) -> int:
        return self.oov_buckets

    @property
    def reads_whole_numbers(self) -> bool:
        return self.whole_numbers
