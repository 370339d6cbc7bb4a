"""Reads raw logs (TSV, CSV, JSON lines, Parquet) as checked, columnar batches; malformed rows become rejects.

A log is read in independent ranges of whole lines or row groups. A row of text is one line, or several lines with
data.quoted_line_breaks.
"""

import collections
import contextlib
import dataclasses
import glob
import gzip
import io
import os
import pathlib
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.byte_sum import ByteSum, SummedFile, changed, joined
from ctrpipe.transforms.log.json_lines import parse_objects
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.time import Time
from ctrpipe.transforms.log.lines import CHUNK_BYTES, Lines, count_values, whole_lines, whole_records
from ctrpipe.transforms.log.payload import plain
from ctrpipe.transforms.log.spec import USUAL_MISSING, LogSpec, spellings
from ctrpipe.transforms.log.values import (
    TextNumbers,
    as_binary,
    as_floats,
    check_aligned,
    check_times,
    check_utf8,
    check_utf8_of,
    is_list,
    join_lists,
    to_floats,
    to_labels,
    to_weights,
    whole_numbers,
    without_numbers,
    without_words,
)

RANGE_BYTES = 32 << 20
BYTES_PER_SECOND = 70e6  # that one process reads, checks and writes as payload, with 40 columns
PARQUET_ROWS = 1 << 16  # rows of a batch
_GZIP_FACTOR = 4  # approximate bytes of text per compressed byte
_COUNT_SECONDS = 5e-10  # time per byte to count lines
_ONE_PROCESS = Workers(processes=1)
_MARK = b"\xef\xbb\xbf"  # byte order mark
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
_PARQUET_MARK = b"PAR1"  # the first and last bytes of a Parquet file
_LINES_LOOKED_AT = 100  # to detect whether a file without a header has labels


@dataclasses.dataclass(frozen=True)
class Range:
    """A part of a file that can be read independently: whole lines, or whole row groups of Parquet.

    Attributes:
        path: The file.
        columns: The file's columns, in order.
        start: Position of the first byte, after any header; for Parquet, index of the first row group.
        length: Number of bytes or row groups; None: up to the end of the file.
        line: Number of the first line in the file, from 1, a header included; for Parquet, of the first row.
        size: Approximate number of bytes of text or Parquet.
        header: Number of bytes of the file's header before the range; 0 except in a file's first range.
        layout: CRC-32 of that header; for Parquet, of the footer. Detects a file whose layout has changed.
    """

    path: str
    columns: tuple[str, ...]
    start: int
    length: int | None
    line: int
    size: int
    header: int = 0
    layout: int = 0

    @property
    def is_first(self) -> bool:
        """Whether this is the first range of its file."""
        return self.start == self.header


@dataclasses.dataclass(frozen=True)
class Reject:
    """A malformed row: its line number in the file, the reason, and its text.

    Lines count from 1, a header included, as in an editor. For Parquet, `line` is the row's number, from 1, and `text`
    contains its values, separated by tabs.
    """

    line: int
    reason: str
    text: str


@dataclasses.dataclass(frozen=True)
class LogBatch:
    """Rows of one file.

    Attributes:
        path: The file.
        rows: Numeric columns, labels and weights as float32, all others as binary; null = missing.
        lines: int64 [rows], the line number of each row in the file, as in Reject.
        rejects: The malformed rows of the same part of the file.
    """

    path: str
    rows: pa.RecordBatch
    lines: np.ndarray
    rejects: list[Reject]


def find_files(patterns: list[str]) -> list[str]:
    """Returns the files of paths, globs and partitioned folders; the files of one pattern are sorted by name.

    Raises:
        InputError: a file is missing, a glob matches nothing, or there are no patterns.
    """
    if not patterns:
        raise InputError("No data: give --data PATH, or data.paths in the configuration")
    files: list[str] = []
    for pattern in patterns:
        if pathlib.Path(pattern).is_file():  # a name may contain [ or ?
            files.append(pattern)
            continue
        if found := _files_in(pattern):
            files += found
            continue
        if pathlib.Path(pattern).is_dir():
            raise InputError(f"{pattern}: a folder; name its files, as in '{pattern}/*'")
        matches = sorted(name for name in glob.glob(pattern) if pathlib.Path(name).is_file())
        if not matches:
            is_glob = glob.has_magic(pattern)
            raise InputError(f"{pattern}: {'no file matches' if is_glob else 'no such file'}; check the path")
        files += matches
    return files


def _files_in(folder: str) -> list[str]:
    """Returns the files in subfolders with names such as day=2026-11-01, at any depth, sorted by path."""
    files = [path for path in pathlib.Path(folder).glob("*=*/**/*") if path.is_file()]
    return sorted(str(path) for path in files if not path.name.startswith((".", "_")))


def first_bytes(path: str, size: int) -> bytes:
    """Returns the first bytes of a text file, decompressed if necessary.

    Raises:
        InputError: the file cannot be read.
    """
    with _text_errors(path), _open(path) as file:
        return file.read(size)


def partition_values(path: str) -> dict[str, bytes | None]:
    """Returns the column values in a file's folder names, in Hive's form: `day=2026-11-01`, with %2F for a slash."""
    pairs = (part.partition("=") for part in pathlib.Path(path).parts[:-1] if "=" in part)
    return {name: None if text == _HIVE_NULL else urllib.parse.unquote_to_bytes(text) for name, _, text in pairs}


def plan(files: list[str], spec: LogSpec, labels: bool = True, workers: Workers = _ONE_PROCESS) -> list[Range]:
    """Cuts the files into ranges of about RANGE_BYTES each, in order. A compressed file is one range.

    Args:
        files: The files of a log.
        spec: The description of the log.
        labels: See LogReader.
        workers: Count the lines of files that are cut.

    Raises:
        InputError: a file is empty or unreadable, or lacks a column of the configuration.
    """
    reader = LogReader(spec, labels)
    by_file = [reader.ranges(path) for path in files]
    cut = [part for parts in by_file for part in parts[:-1] if not reader.is_parquet(part.path)]
    seconds = _COUNT_SECONDS * sum(part.size for part in cut)
    counts = iter(workers.map(_count_lines, cut, seconds) if cut else [])
    ranges: list[Range] = []
    for parts in by_file:
        line = parts[0].line
        for part in parts:
            if reader.is_parquet(part.path):  # line numbers are known from the footer
                ranges.append(part)
                continue
            ranges.append(dataclasses.replace(part, line=line))
            line += next(counts) if part is not parts[-1] else 0
    return ranges


def sums_of_files(ranges: Sequence[Range], sums: Sequence[ByteSum]) -> list[ByteSum]:
    """Returns each file's checksum from the checksums of all ranges of a plan."""
    by_file: list[list[ByteSum]] = []
    for part, read in zip(ranges, sums, strict=True):
        if part.is_first:
            by_file.append([])
        by_file[-1].append(read)
    return [joined(pieces) for pieces in by_file]


def _count_lines(part: Range) -> int:
    with _text_errors(part.path), _open(part.path) as file:
        file.seek(part.start)
        chunks = whole_lines(file, part.length)
        return sum(int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))) for chunk in chunks)


class LogReader:
    """Reads the logs that `spec` describes.

    Args:
        spec: The description of the log.
        labels: Whether rows must have labels, and weights if `data.weight` is set. If False, neither is read, and files
            may lack both.
    """

    def __init__(self, spec: LogSpec, labels: bool = True):
        self.spec = spec
        extra = [spec.data.split.column] if spec.data.split.column and labels else []
        self._numeric_columns = dict.fromkeys(spec.numeric_columns)
        text = [name for name in spec.text_columns + extra if name not in self._numeric_columns]
        self._text_columns = list(dict.fromkeys(text))
        self._labels = labels
        self._label_columns = spec.label_columns if labels else []
        targets = spec.target_columns if labels else []
        self._weight = spec.data.weight if labels else None
        self._columns = [*self._numeric_columns, *self._text_columns, *targets]
        self._file_columns = [name for name in self._columns if name not in spec.data.partitions]
        self._separators = spec.separators
        self._sequences = frozenset(spec.columns_of("sequence"))
        self._aligned = [
            feature.columns for feature in spec.features if feature.kind == "sequence" and len(feature.columns) > 1
        ]
        self._delimiter = spec.data.separator.encode()
        self._quoted = spec.data.format == "csv"
        self._parquet_files: dict[str, bool] = {}
        decimal = spec.data.decimal
        self._written = {
            column: TextNumbers(tuple(word.encode() for word in spec.missing_words(feature)), decimal)
            for column, feature in spec.feature_by_column.items()
        }
        self._times = {
            column: feature.format for column, feature in spec.feature_by_column.items() if isinstance(feature, Time)
        }
        self._whole = {
            column
            for column, feature in spec.feature_by_column.items()
            if isinstance(feature, Categorical) and feature.whole_numbers
        }
        words = USUAL_MISSING if spec.data.missing_values is None else sorted(spellings(spec.data.missing_values))
        self._label_written = TextNumbers(tuple(word.encode() for word in words), decimal)
        self._missing_numbers = spec.missing_numbers
        self._label_rules = {label.column: label for label in spec.data.labels.values()}

    def read(self, path: str) -> Iterator[LogBatch]:
        """Yields all rows of a file, in order.

        Raises:
            InputError: the file is empty, truncated or unreadable, or lacks a column of the configuration.
        """
        if self.is_parquet(path):
            for part in self._row_groups(path):
                yield from self.read_range(part)
        else:
            yield from self.read_range(self._whole_text(path))

    def read_range(self, part: Range, into: ByteSum | None = None) -> Iterator[LogBatch]:
        """Yields all rows of a range of `plan`, in order.

        Args:
            part: The range.
            into: Checksum of the range's bytes, complete once all rows are read. For Parquet it includes the bytes up
                to the next range: together, the ranges of a file cover all its bytes.

        Raises:
            InputError: the file is empty, truncated or unreadable, or has changed since the plan.
        """
        read = self._read_row_groups if self.is_parquet(part.path) else self._read_text
        return read(part, into)

    def is_parquet(self, path: str) -> bool:
        """Returns whether a file is Parquet, by the configuration or by the file's first bytes.

        The files of `ctrpipe prepare requests` are always Parquet, but may be read with the description of a text log.
        """
        if path not in self._parquet_files:
            self._parquet_files[path] = self.spec.data.format == "parquet" or _starts_as_parquet(path)
        return self._parquet_files[path]

    def ranges(self, path: str) -> list[Range]:
        """Returns the ranges of one file. For text, `line` is valid in the first range only.

        Raises:
            InputError: see `read`.
        """
        if self.is_parquet(path):
            return self._row_groups(path)
        whole = self._whole_text(path)
        is_one = whole.length is None or self.spec.data.quoted_line_breaks
        return [whole] if is_one else list(_cut(whole))

    def check_columns(self, path: str) -> None:
        """Raises InputError if a file is empty or unreadable, or lacks a column, without reading its rows."""
        if self.is_parquet(path):
            self._row_groups(path)
        else:
            self._whole_text(path)
        self._of_folders(path, 0)

    # Text -----------------------------------------------------------------------------------------------------------

    def _whole_text(self, path: str) -> Range:
        """Returns the whole file without its header as one range."""
        columns, header = self.spec.data.columns, b""
        is_plain = not path.endswith((".gz", ".zst"))
        with _text_errors(path):
            size = os.path.getsize(path)
            if not self.spec.data.is_table or self.spec.data.header or not self._labels:
                with _open(path) as file:
                    columns, header = self._columns_of_file(path, next(whole_lines(file), b""))
        if is_plain and size == len(header):
            raise _empty(path)
        length = size - len(header) if is_plain else None
        text = length or size * _GZIP_FACTOR
        line, layout = 1 + header.count(b"\n"), zlib.crc32(header)
        return Range(path, tuple(columns), len(header), length, line, text, len(header), layout)

    def _columns_of_file(self, path: str, chunk: bytes) -> tuple[list[str], bytes]:
        """Returns the file's column names and the bytes of its header line, b"" without a header."""
        data = self.spec.data
        if not chunk:
            raise _empty(path)
        if data.format == "jsonl":
            return [], _MARK if chunk.startswith(_MARK) else b""
        labels = set(self.spec.target_columns)
        unlabelled = [name for name in data.columns if name not in labels]
        if data.header:
            first, newline, _ = chunk.partition(b"\n")
            try:
                values = _split_line(first.rstrip(b"\r"), self._parse_options())
            except pa.ArrowInvalid as error:
                raise InputError(f"{path}: the header cannot be read ({one_line(error, 200)})") from error
            names = [value.decode("utf-8", "replace").removeprefix("\ufeff") for value in values]
            self._check_columns(path, names, unlabelled)
            return names, first + newline
        lines = chunk.split(b"\n", _LINES_LOOKED_AT)[:_LINES_LOOKED_AT]
        widths = [count_values(line, self._delimiter, self._quoted) for line in lines]
        if widths.count(len(unlabelled)) > widths.count(len(data.columns)):
            return unlabelled, b""
        return data.columns, b""

    def _check_columns(self, path: str, names: list[str], further: Sequence[str] = ()) -> None:
        """Raises InputError if one of the columns to read or of `further` is missing or repeated."""
        wanted = dict.fromkeys([*self._file_columns, *further])
        occurrences = collections.Counter(names)
        repeated = [name for name in wanted if occurrences[name] > 1]
        if repeated:
            raise InputError(f"{path}: the header names {', '.join(repeated)} twice; rename one of them")
        absent = [name for name in wanted if not occurrences[name]]
        if absent:
            raise InputError(
                f"{path}: the header lacks {', '.join(absent)}, which the configuration names; "
                f"it has {', '.join(names)}"
            )

    def _parse_options(self, invalid: Callable[[pa.csv.InvalidRow], str] | None = None) -> pa.csv.ParseOptions:
        return pa.csv.ParseOptions(
            delimiter=self._delimiter.decode(),
            quote_char='"' if self._quoted else False,
            newlines_in_values=self.spec.data.quoted_line_breaks,
            ignore_empty_lines=False,
            invalid_row_handler=invalid,
        )

    def _read_text(self, part: Range, into: ByteSum | None) -> Iterator[LogBatch]:
        line, position = part.line, 0
        with _text_errors(part.path), _open_summed(part, into or ByteSum()) as file:
            if zlib.crc32(file.read(part.header)) != part.layout:
                raise changed(part.path)
            for lines in self._lines(file, part):
                batch = self._parse(part.path, lines, line, list(part.columns))
                line += lines.breaks
                position += lines.size
                yield batch
        if not position:
            raise _empty(part.path)
        if part.length not in (None, position):
            raise changed(part.path)

    def _lines(self, file: IO[bytes], part: Range) -> Iterator[Lines]:
        """Yields the lines of a range in chunks."""
        if self.spec.data.quoted_line_breaks:
            return whole_records(file, part.length, self._delimiter, len(part.columns))
        return (Lines(chunk, self._delimiter, self._quoted) for chunk in whole_lines(file, part.length))

    def _parse(self, path: str, lines: Lines, first_line: int, columns: list[str]) -> LogBatch:
        not_utf8 = lines.not_utf8()
        if self.spec.data.format == "jsonl":
            faults = dict.fromkeys(not_utf8, "invalid UTF-8")
        else:
            faults = lines.faults(len(columns), not_utf8)
        kept = np.delete(np.arange(len(lines)), list(faults))
        try:
            table, wrong = self._to_table(lines.without(list(faults)), len(kept), columns)
        except pa.ArrowInvalid as error:
            place = f"lines {first_line} to {first_line + lines.breaks - 1}"
            raise InputError(f"{path}: {place} cannot be read ({one_line(error, 200)})") from error
        faults.update((int(kept[row]), reason) for row, reason in wrong.items())
        kept = np.delete(kept, list(wrong))
        suspects: list[int] | None = np.flatnonzero(np.isin(kept, not_utf8)).tolist() if not_utf8 else []
        if self.spec.data.format == "jsonl":
            suspects = None  # an escape may be half of a surrogate pair
        rows, bad = self._check(table | self._of_folders(path, len(kept)), suspects)
        faults.update((int(kept[row]), reason) for row, reason in bad.items())
        kept = np.delete(kept, list(bad))
        rejects = [
            Reject(first_line + int(lines.numbers[line]), faults[line], lines[line].decode("utf-8", "backslashreplace"))
            for line in sorted(faults)
        ]
        return _checked(LogBatch(path, rows, first_line + lines.numbers[kept], rejects), len(lines))

    def _of_folders(self, path: str, rows: int) -> dict[str, pa.Array]:
        """Returns the columns whose values are in the file's folder names (`data.partitions`).

        Raises:
            InputError: the folder names lack a column.
        """
        wanted = [name for name in self._columns if name in self.spec.data.partitions]
        said = partition_values(path) if wanted else {}
        absent = [name for name in wanted if name not in said]
        if absent:
            raise InputError(f"{path}: no folder of the path is called {absent[0]}=..., as data.partitions has it")
        return {name: pa.repeat(pa.scalar(said[name], pa.binary()), rows) for name in wanted}

    def _to_table(self, text: bytes, rows: int, columns: list[str]) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Parses whole lines. Returns the columns to read, as binary, and the reasons of malformed rows, by row.

        Raises:
            pa.ArrowInvalid: a line cannot be parsed, or a quoted value spans several lines.
        """
        if not rows:
            return {name: pa.array([], pa.binary()) for name in self._file_columns}, {}
        if self.spec.data.format == "jsonl":
            return parse_objects(text.split(b"\n")[:-1], self._file_columns, self._separators, self._sequences)
        wrong: dict[int, str] = {}

        def pass_over(row: pa.csv.InvalidRow) -> str:
            wrong[row.number - 1] = f"expected {row.expected_columns} columns, found {row.actual_columns}"
            return "skip"

        table = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(column_names=columns, use_threads=False, block_size=len(text) + 1),
            parse_options=self._parse_options(pass_over),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.binary() for name in self._file_columns},
                include_columns=self._file_columns,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                null_values=[""],
                check_utf8=False,
            ),
        )
        if table.num_rows + len(wrong) != rows:
            raise pa.ArrowInvalid("a quoted value holds a line break; set data.quoted_line_breaks")
        return {name: _one_chunk(table.column(name)) for name in self._file_columns}, wrong

    # Parquet --------------------------------------------------------------------------------------------------------

    def _row_groups(self, path: str) -> list[Range]:
        with _parquet_errors(path), open(path, "rb") as source:
            layout = zlib.crc32(_parquet_footer(source))
            file = _to_parquet(path, source)
            names = file.schema_arrow.names
            self._check_columns(path, names)
            groups = [file.metadata.row_group(index) for index in range(file.num_row_groups)]
            offsets = _row_group_offsets(file.metadata)
        if not sum(group.num_rows for group in groups):
            raise _empty(path)
        ranges: list[Range] = []
        start, line = 0, 1
        for index in range(len(groups)):
            rows = sum(before.num_rows for before in groups[start : index + 1])
            size = sum(before.total_byte_size for before in groups[start : index + 1])
            if (size >= RANGE_BYTES and offsets == sorted(offsets)) or index + 1 == len(groups):
                ranges.append(Range(path, tuple(names), start, index + 1 - start, line, size, 0, layout))
                start, line = index + 1, line + rows
        return ranges

    def _read_row_groups(self, part: Range, into: ByteSum | None) -> Iterator[LogBatch]:
        line = part.line
        with _parquet_errors(part.path), open(part.path, "rb") as source:
            file = _to_parquet(part.path, source) if into is None else _row_groups_in_memory(source, part, into)
            groups = list(range(part.start, part.start + (part.length or 0)))
            for batch in file.iter_batches(PARQUET_ROWS, row_groups=groups, columns=self._file_columns):
                yield self._check_parquet(part.path, batch, line)
                line += batch.num_rows

    def _check_parquet(self, path: str, batch: pa.RecordBatch, first_row: int) -> LogBatch:
        table: dict[str, pa.Array] = {}
        faults: dict[int, str] = {}
        for name in self._file_columns:
            values = plain(batch.column(name))
            is_number = pa.types.is_integer(values.type) or pa.types.is_floating(values.type)
            if is_number and name in self._numeric_columns:
                table[name] = values
            elif is_list(values.type) and name in self._separators:
                table[name] = join_lists(values, self._separators[name], name, path, faults, name in self._sequences)
            else:
                table[name] = as_binary(values, name, path)
        table |= self._of_folders(path, batch.num_rows)
        rows, bad = self._check(table, None, faults)
        kept = np.delete(np.arange(batch.num_rows), list(bad))
        rejects = [Reject(first_row + row, bad[row], _row_text(table, row)) for row in sorted(bad)]
        return _checked(LogBatch(path, rows, first_row + kept, rejects), batch.num_rows)

    # Values ---------------------------------------------------------------------------------------------------------

    def _check(
        self, table: dict[str, pa.Array], suspects: list[int] | None, found: dict[int, str] | None = None
    ) -> tuple[pa.RecordBatch, dict[int, str]]:
        """Returns the good rows, and the reasons of malformed rows, by row.

        Args:
            table: Binary columns; numeric columns may also be numbers.
            suspects: The rows that may contain invalid UTF-8; None for all rows.
            found: The rows that are already known to be malformed, with their reasons.
        """
        columns: dict[str, pa.Array] = {}
        faults = found or {}
        for name in self._numeric_columns:
            if pa.types.is_binary(table[name].type):
                columns[name] = to_floats(table[name], name, faults, self._written[name])
            else:
                columns[name] = as_floats(table[name], name, faults)
            columns[name] = without_numbers(columns[name], self._missing_numbers)
        for name in self._text_columns:
            columns[name] = self._plain_texts(table[name], name)
            if suspects is None:
                check_utf8(table[name], name, faults)
            else:
                check_utf8_of(suspects, table[name], name, faults)
            if name in self._times:
                check_times(columns[name], name, faults, self._times[name])
        for aligned in self._aligned:
            check_aligned({name: columns[name] for name in aligned}, self._separators[aligned[0]], faults)
        for name in self._label_columns:
            columns[name] = to_labels(table[name], name, faults, self._label_rules[name], self._label_written)
        if self._weight:
            columns[self._weight] = to_weights(table[self._weight], self._weight, faults, self._label_written)
        return _without_rows(pa.RecordBatch.from_pydict(columns), sorted(faults)), faults

    def _plain_texts(self, values: pa.Array, name: str) -> pa.Array:
        """Normalises missing values and whole numbers, as the served graph does (`_plain_values`)."""
        if name in self._written:
            values = without_words(values, self._written[name].missing)
        return whole_numbers(values) if name in self._whole else values


def _checked(batch: LogBatch, lines: int) -> LogBatch:
    """Returns the batch; raises RuntimeError if its rows and rejects do not add up to all lines."""
    if not batch.rows.num_rows == len(batch.lines) == lines - len(batch.rejects):
        counts = f"{batch.rows.num_rows} rows and {len(batch.rejects)} malformed ones"
        raise RuntimeError(f"{batch.path}: {counts} of {lines} lines")
    return batch


def _without_rows(rows: pa.RecordBatch, bad: list[int]) -> pa.RecordBatch:
    if not bad:
        return rows
    if len(bad) > rows.num_rows // 150:
        keep = np.ones(rows.num_rows, bool)
        keep[bad] = False
        return rows.filter(pa.array(keep))
    # Faster than a filter if few rows are removed.
    starts, ends = [0, *(row + 1 for row in bad)], [*bad, rows.num_rows]
    good = [rows.slice(start, end - start) for start, end in zip(starts, ends, strict=True)]
    return pa.Table.from_batches(good).combine_chunks().to_batches()[0]


def _cut(whole: Range) -> Iterator[Range]:
    """Cuts the range of an uncompressed file into ranges of whole lines, about RANGE_BYTES each."""
    stop = whole.start + (whole.length or 0)
    with _text_errors(whole.path), _open(whole.path) as file:
        start, header, layout = whole.start, whole.header, whole.layout
        while start < stop:
            file.seek(start + RANGE_BYTES - 1)
            end = min(_end_of_line(file), stop)
            length = end - start
            yield Range(whole.path, whole.columns, start, length, whole.line, length, header, layout)
            start, header, layout = end, 0, 0


def _end_of_line(file: IO[bytes]) -> int:
    """Returns the position after the next line break, or the end of the file if there is none."""
    while block := file.read(CHUNK_BYTES):
        if end := block.find(b"\n") + 1:
            return file.tell() - len(block) + end
    return file.tell()


@contextlib.contextmanager
def _text_errors(path: str) -> Iterator[None]:
    """Converts errors of reading a text file to InputError."""
    try:
        yield
    except EOFError as error:
        raise InputError(f"{path}: the gzip file is cut short; copy or write it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: not a valid gzip file ({one_line(error, 200)})") from error
    except OSError as error:
        if error.errno is None and path.endswith(".zst"):
            text = one_line(error, 200)
            raise InputError(f"{path}: not a whole zstd file ({text}); copy or write it again") from error
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


@contextlib.contextmanager
def _parquet_errors(path: str) -> Iterator[None]:
    """Converts errors of reading a Parquet file to InputError."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: the Parquet file is damaged ({one_line(error, 200)})") from error


def _to_parquet(path: str, source: IO[bytes]) -> pa.parquet.ParquetFile:
    try:
        return pa.parquet.ParquetFile(source)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a readable Parquet file ({one_line(error, 200)})") from error


def _starts_as_parquet(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(len(_PARQUET_MARK)) == _PARQUET_MARK
    except OSError:
        return False  # the reader reports the error


def _parquet_footer(source: IO[bytes]) -> bytes:
    """Returns the bytes from a Parquet file's footer to its end. Changes the file position.

    Source: https://parquet.apache.org/docs/file-format/
    """
    size = source.seek(0, io.SEEK_END)
    source.seek(max(0, size - 8))
    length = int.from_bytes(source.read(4), "little") + 8
    source.seek(max(0, size - length))
    return source.read()


def _row_group_offsets(metadata: pa.parquet.FileMetaData) -> list[int]:
    """Returns the byte offsets of the row groups in the file."""
    offsets = []
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        columns = map(group.column, range(group.num_columns))
        offsets.append(min(column.dictionary_page_offset or column.data_page_offset for column in columns))
    return offsets


def _row_groups_in_memory(source: IO[bytes], part: Range, into: ByteSum) -> pa.parquet.ParquetFile:
    """Reads a range into memory, adds its bytes to the checksum, and returns a Parquet file of these bytes.

    Arrow reads a Parquet file piece by piece. On disk, a piece could change after its checksum was computed.
    """
    footer = _parquet_footer(source)
    size = source.tell()
    if zlib.crc32(footer) != part.layout:
        raise changed(part.path)
    metadata = pa.parquet.read_metadata(pa.BufferReader(_PARQUET_MARK + footer))
    offsets = _row_group_offsets(metadata)
    stop = part.start + (part.length or 0)
    begin = offsets[part.start] if part.start else 0
    end = offsets[stop] if stop < len(offsets) else size
    source.seek(begin)
    data = source.read(end - begin)
    into.add(data)
    return pa.parquet.ParquetFile(pa.PythonFile(_Piece(data, begin, size), "r"), metadata=metadata)


class _Piece(io.RawIOBase):
    """A file of `size` bytes with `data` at position `begin`. All other bytes are not needed and read as zeros."""

    def __init__(self, data: bytes, begin: int, size: int):
        self._data = memoryview(data)
        self._begin = begin
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int = -1) -> bytes:
        start, stop = self._position, self._size if size < 0 else min(self._position + size, self._size)
        self._position = max(start, stop)
        wanted = self._data[max(0, start - self._begin) : max(0, stop - self._begin)]
        return bytes(wanted).rjust(min(stop, self._begin) - start, b"\0") if start < self._begin else bytes(wanted)


def _empty(path: str) -> InputError:
    return InputError(f"{path}: the file has no rows; check that it was written completely")


def _open(path: str) -> IO[bytes]:
    if path.endswith(".zst"):
        return cast(IO[bytes], _Zstd(open(path, "rb")))
    return cast(IO[bytes], gzip.open(path, "rb")) if path.endswith(".gz") else open(path, "rb")


class _Zstd(io.RawIOBase):
    """The decompressed text of a zstd file, which may have several frames.

    Args:
        file: The compressed file, which is closed with this one.
    """

    def __init__(self, file: IO[bytes]):
        self._file = file
        self._text = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        text: bytes = self._text.read(None if size < 0 else size)
        return text

    def close(self) -> None:
        self._file.close()
        super().close()


@contextlib.contextmanager
def _open_summed(part: Range, into: ByteSum) -> Iterator[IO[bytes]]:
    """Opens the text of a range at its start, header included, and adds all bytes read from the file to `into`."""
    with open(part.path, "rb") as raw:
        summed = cast(IO[bytes], SummedFile(raw, into))
        if part.path.endswith(".gz"):
            with gzip.GzipFile(fileobj=summed) as text:
                yield cast(IO[bytes], text)
        elif part.path.endswith(".zst"):
            yield cast(IO[bytes], _Zstd(summed))
        else:
            raw.seek(part.start - part.header)
            yield summed


def _split_line(line: bytes, options: pa.csv.ParseOptions) -> list[bytes]:
    if not line:
        return []
    read = pa.csv.ReadOptions(autogenerate_column_names=True)
    convert = pa.csv.ConvertOptions(check_utf8=False, column_types={})
    table = pa.csv.read_csv(pa.BufferReader(line + b"\n"), read, options, convert)
    names = {name: pa.binary() for name in table.column_names}
    convert = pa.csv.ConvertOptions(check_utf8=False, column_types=names)
    table = pa.csv.read_csv(pa.BufferReader(line + b"\n"), read, options, convert)
    return [column[0].as_py() for column in table.columns]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _row_text(table: dict[str, pa.Array], row: int) -> str:
    values = (column[row].as_py() for column in table.values())
    texts = (value if isinstance(value, bytes) else b"" if value is None else str(value).encode() for value in values)
    return "\t".join(text.decode("utf-8", "backslashreplace") for text in texts)
