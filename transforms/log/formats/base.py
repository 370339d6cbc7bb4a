"""The interface of a log file format."""

import abc
import collections
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.batches import RawBatch
from ctrpipe.transforms.log.column_types import Mixture
from ctrpipe.transforms.log.files import Range
from ctrpipe.transforms.log.spec import LogSpec


class Format(abc.ABC):
    """Cuts the files of one format into ranges, and reads ranges as rows with unchecked values.

    Args:
        spec: The description of the log.
        columns: The columns to read from the files, without those in folder names.
        labels: Whether the files must have the labels and the weight.

    Attributes:
        mixture: The numbers and texts seen in columns of categories, for a format without column types.
    """

    def __init__(self, spec: LogSpec, columns: Sequence[str], labels: bool):
        self._spec = spec
        self._columns = columns
        self._labels = labels
        self.mixture = Mixture()

    @abc.abstractmethod
    def whole(self, path: str) -> list[Range]:
        """Returns the ranges of a file for one process, in order. Each has the number of its first line.

        Raises:
            InputError: the file is empty or unreadable, or lacks a column.
        """

    def ranges(self, path: str) -> list[Range]:
        """Returns the ranges of a file for several processes; `line` is 0 if lines must be counted.

        Raises:
            InputError: see `whole`.
        """
        return self.whole(path)

    @abc.abstractmethod
    def read(self, part: Range) -> Iterator[RawBatch]:
        """Yields the rows of a range, in order.

        Raises:
            InputError: the file is empty, truncated or unreadable, or differs from the file that was cut into ranges.
        """

    def types(self, path: str) -> dict[str, pa.DataType]:
        """Returns the column types of a file that `whole` or `ranges` has opened; empty for a format without types."""
        return {}

    def texts(self, path: str, names: Sequence[str]) -> Iterator[dict[str, pa.Array]]:
        """Yields the values of columns that are text in the file, or in a file without types; the elements of lists.

        Raises:
            InputError: see `read`.
        """
        separators = self._spec.separators
        for part in self.whole(path):
            for batch in self.read(part):
                yield {name: _elements(batch.columns[name], separators.get(name)) for name in names}

    @classmethod
    def row_count(cls, path: str) -> int | None:
        """Returns the number of rows that a file states; None if the format states none.

        Raises:
            OSError: the file cannot be read.
        """
        return None


def _elements(values: pa.Array, separator: str | None) -> pa.Array:
    return values if separator is None else pc.list_flatten(pc.split_pattern(values, separator))


def check_names(path: str, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Checks the column names that a file states.

    Raises:
        InputError: one of the wanted columns is missing or repeated.
    """
    occurrences = collections.Counter(names)
    repeated = [name for name in dict.fromkeys(wanted) if occurrences[name] > 1]
    if repeated:
        raise InputError(f"{path}: the header names {', '.join(repeated)} twice; rename one of them")
    absent = [name for name in dict.fromkeys(wanted) if not occurrences[name]]
    if absent:
        shown = excerpt(", ".join(names))
        others = [name for name in names if name not in wanted]
        raise InputError(
            f"{path}: the header lacks {', '.join(absent)}, which the configuration names; it has {shown}"
            f"{did_you_mean(absent[0], others) or _other_delimiter(names, wanted)}"
        )


def _other_delimiter(names: Sequence[str], wanted: Sequence[str]) -> str:
    """Returns a hint at another delimiter for a header with a single name; "" if no delimiter gives the columns."""
    if len(names) != 1:
        return ""
    parted = {sign: {name.strip(' "') for name in names[0].split(sign)} for sign in ("\t", ";", ",", "|")}
    sign = next((sign for sign, parts in parted.items() if set(wanted) <= parts), None)
    return f": the values are parted by {sign!r}, which data.delimiter is not" if sign else ""
