"""Reads raw logs of any format as checked, columnar batches; malformed rows become rejects.

A log is read in independent ranges of whole lines or row groups. A row of text is one line, or several lines with
data.quoted_line_breaks.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.printable import excerpt
from ctrpipe.common.processes import Workers
from ctrpipe.common.stores import in_parallel
from ctrpipe.transforms.log.batches import LogBatch, RawBatch
from ctrpipe.transforms.log.checks import RowChecks
from ctrpipe.transforms.log.column_types import Mixture, check_types
from ctrpipe.transforms.log.files import Range, number_lines, partition_values, unchanged
from ctrpipe.transforms.log.formats.base import Format
from ctrpipe.transforms.log.formats.registry import format_of
from ctrpipe.transforms.log.nested import DOT
from ctrpipe.transforms.log.ordering import Ordering
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.spec import LogSpec

BYTES_PER_SECOND = 70e6  # that one process reads, checks and writes as payload, with 40 columns
_ONE_PROCESS = Workers(processes=1)


def plan(
    files: list[str],
    spec: LogSpec,
    labels: bool = True,
    workers: Workers = _ONE_PROCESS,
    kept: Sequence[str] = (),
) -> list[Range]:
    """Cuts the files into ranges of about RANGE_BYTES each, in order. A compressed file is one range.

    Args:
        files: The files of a log.
        spec: The description of the log.
        labels: See LogReader.
        workers: Count the lines of files that are cut.
        kept: See LogReader.

    Raises:
        InputError: a file is empty or unreadable, or lacks a column of the configuration or of `kept`; or a column's
            types in two files cannot be compared.
    """
    if kept:
        _check_kept(files, spec, labels, kept)
    reader = LogReader(spec, labels, kept=kept)
    ranges = in_parallel(reader.ranges, files)
    reader.check_types(files)
    return number_lines(ranges, workers)


def _check_kept(files: Sequence[str], spec: LogSpec, labels: bool, kept: Sequence[str]) -> None:
    """Raises InputError if a file's stated columns lack a column of `kept`."""
    for path, columns in zip(files, in_parallel(LogReader(spec, labels).stated_columns, files), strict=True):
        names = [*columns, *spec.data.partitions]
        absent = [name for name in kept if names and name not in names and name.split(DOT)[0] not in names]
        if absent:
            raise InputError(
                f"{path}: --keep {absent[0]}: no such column; it has {excerpt(', '.join(names))}"
                f"{did_you_mean(absent[0], names)}"
            )


class LogReader:
    """Reads the logs that `spec` describes.

    Args:
        spec: The description of the log.
        labels: Whether rows must have labels, and weights if `data.weight` is set. If False, neither is read, files may
            lack both, and infinite numbers are not malformed (see RowChecks).
        features, ordering, kept: See RowChecks.
        own: The values of the log of the model that takes the rows; None for rows of the log itself.
    """

    def __init__(
        self,
        spec: LogSpec,
        labels: bool = True,
        features: bool = True,
        ordering: Ordering | None = None,
        kept: Sequence[str] = (),
        own: OwnValues | None = None,
    ):
        self.spec = spec
        self._own = own
        self._labels = labels
        self._checks = RowChecks(spec, labels, features, ordering, kept)
        partitions = spec.data.partitions
        self._folder_columns = [name for name in self._checks.columns if name in partitions]
        self._file_columns = [name for name in self._checks.columns if name not in partitions]
        self._formats: dict[str, Format] = {}  # by file

    def read(self, path: str) -> Iterator[LogBatch]:
        """Yields all rows of a file, in order.

        Raises:
            InputError: the file is empty, truncated or unreadable, or lacks a column of the configuration; or see
                `OwnValues.of_rows`.
        """
        for part in self._format(path).whole(path):
            yield from self.read_range(part)

    def read_range(self, part: Range) -> Iterator[LogBatch]:
        """Yields all rows of a range of `plan`, in order.

        Raises:
            InputError: the file is empty, truncated or unreadable, or has changed since the plan; or see
                `OwnValues.of_rows`.
        """
        with unchanged(part.path, part.state):
            yield from map(self._checked, self._format(part.path).read(part))

    def ranges(self, path: str) -> list[Range]:
        """Returns the ranges of one file; `line` is 0 where lines must be counted.

        Raises:
            InputError: see `read`.
        """
        return self._format(path).ranges(path)

    def stated_columns(self, path: str) -> list[str]:
        """Returns the columns that a file states, without reading its rows; empty for a format without a header.

        Raises:
            InputError: see `read`.
        """
        return list(self._format(path).whole(path)[0].columns)

    def check_columns(self, path: str) -> None:
        """Raises InputError if a file is empty or unreadable, or lacks a column, without reading its rows."""
        self._format(path).whole(path)
        self._of_folders(path, 0)

    def check_types(self, files: Sequence[str]) -> None:
        """Raises InputError if equal values of a category differ between files, because the files' types differ.

        Args:
            files: Files whose ranges or columns this reader has already determined.
        """
        typed = [(path, self._format(path).types(path)) for path in files]
        check_types(typed, self.spec.compared_columns, lambda path, names: self._format(path).texts(path, names))

    def mixture(self) -> Mixture:
        """Returns the mixture of numbers and differently written texts in columns of categories, for the rows read so
        far.
        """
        total = Mixture()
        for each in self._formats.values():
            total.add(each.mixture)
        return total

    def row_count(self, path: str) -> int | None:
        """Returns the number of rows that a file states; None if they must be read to be counted.

        Raises:
            OSError: the file cannot be read.
        """
        return self._format(path).row_count(path)

    def _format(self, path: str) -> Format:
        if path not in self._formats:
            self._formats[path] = format_of(path, self.spec, self._file_columns, self._labels)
        return self._formats[path]

    def _checked(self, raw: RawBatch) -> LogBatch:
        of_folders = self._of_folders(raw.path, len(raw.lines))
        batch = self._checks.check(dataclasses.replace(raw, columns=raw.columns | of_folders))
        if self._own is None:
            return batch
        return dataclasses.replace(batch, rows=self._own.of_rows(batch.rows, raw.path, raw.numbers, raw.truths))

    def _of_folders(self, path: str, rows: int) -> dict[str, pa.Array]:
        """Returns the columns whose values are in the file's folder names (`data.partitions`).

        Raises:
            InputError: the folder names lack a column.
        """
        values = partition_values(path) if self._folder_columns else {}
        absent = [name for name in self._folder_columns if name not in values]
        if absent:
            raise InputError(f"{path}: no folder of the path is called {absent[0]}=..., as data.partitions requires")
        return {name: pa.repeat(pa.scalar(values[name], pa.binary()), rows) for name in self._folder_columns}
