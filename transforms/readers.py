"""Raw logs (TSV, CSV, Parquet; plain or gzip) -> checked, columnar batches; malformed rows -> rejects with a reason.

A file is read in ranges of whole lines, each a few megabytes, parsed by Arrow. One record is one line: a quoted value
must not hold a line break.
"""

import dataclasses
import glob
import gzip
import pathlib
import re
import zlib
from collections.abc import Iterator
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from transforms.errors import InputError
from transforms.spec import LogSpec

RANGE_BYTES = 8 << 20
_NUMBER = rb"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
# A value as Arrow reads it: a quote counts only where a value begins; what follows the closing one is kept.
_CSV_VALUE = re.compile(rb'(?:^|,)(?:"(?:[^"]|"")*"(?!")[^,]*|[^",][^,]*|(?=,|$))')
_LINES_LOOKED_AT = 100  # to see whether a file without header has labels


@dataclasses.dataclass(frozen=True)
class Reject:
    """A malformed row: its 0-based line in the file and what is wrong with it."""

    line: int
    reason: str
    text: str


@dataclasses.dataclass(frozen=True)
class LogBatch:
    """Rows of one file.

    Attributes:
        rows: numeric columns and labels as float32, all others as binary; null = missing.
        lines: int64 [rows], each row's 0-based line in the file (row number for Parquet).
        rejects: the malformed rows that lay between them.
    """

    path: str
    rows: pa.RecordBatch
    lines: np.ndarray
    rejects: list[Reject]


def find_files(patterns: list[str]) -> list[str]:
    """The files that paths and globs name, each pattern's in name order.

    Raises:
        InputError: a file is missing, a glob matches nothing, or nothing was named.
    """
    if not patterns:
        raise InputError("No data: give --data PATH, or data.paths in the configuration")
    files: list[str] = []
    for pattern in patterns:
        if pathlib.Path(pattern).is_file():  # a name may hold [ or ?
            files.append(pattern)
            continue
        if pathlib.Path(pattern).is_dir():
            raise InputError(f"{pattern}: a folder; name its files, as in '{pattern}/*'")
        found = sorted(name for name in glob.glob(pattern) if pathlib.Path(name).is_file())
        if not found:
            is_glob = glob.has_magic(pattern)
            raise InputError(f"{pattern}: {'no file matches' if is_glob else 'no such file'}; check the path")
        files += found
    return files


class LogReader:
    """Reads logs that `spec` describes.

    Args:
        spec: The description of the log.
        labels: Whether rows must have labels. Without, label columns may be absent and are not read.
    """

    def __init__(self, spec: LogSpec, labels: bool = True):
        self.spec = spec
        self.labels = labels
        extra = [spec.data.split.column] if spec.data.split.column and labels else []
        text = [name for name in spec.text_columns + extra if name not in spec.numeric_columns]
        self.text_columns = list(dict.fromkeys(text))
        self.label_columns = spec.label_columns if labels else []

    def read(self, path: str) -> Iterator[LogBatch]:
        """All rows of a file, in order.

        Raises:
            InputError: the file is empty, cut short, unreadable, or its columns are not those of the configuration.
        """
        empty = True
        batches = self._read_parquet(path) if self.spec.data.format == "parquet" else self._read_text(path)
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise InputError(f"{path}: the file has no rows; check that it was written completely")

    # Text -----------------------------------------------------------------------------------------------------------

    def _read_text(self, path: str) -> Iterator[LogBatch]:
        line, columns = 0, None
        for chunk in _whole_lines(path):
            if columns is None:
                columns, header = self._columns_of_file(path, chunk)
                line += header.count(b"\n")
                chunk = chunk[len(header) :]
            if chunk:
                yield self._parse(path, chunk, line, columns)
            line += chunk.count(b"\n")

    def _columns_of_file(self, path: str, chunk: bytes) -> tuple[list[str], bytes]:
        """The file's column names, and the bytes of its header line (none without header)."""
        data = self.spec.data
        if data.header:
            first, newline, _ = chunk.partition(b"\n")
            try:
                values = _split_line(first.rstrip(b"\r"), self._parse_options())
            except pa.ArrowInvalid as error:
                raise InputError(f"{path}: the header cannot be read ({_one_line(error)})") from error
            names = [value.decode("utf-8", "replace").removeprefix("\ufeff") for value in values]
            self._check_columns(path, names)
            return names, first + newline
        if not self.labels:
            unlabelled = [name for name in data.columns if name not in self.spec.label_columns]
            widths = [self._count_values(line) for line in chunk.split(b"\n", _LINES_LOOKED_AT)[:_LINES_LOOKED_AT]]
            if widths.count(len(unlabelled)) > widths.count(len(data.columns)):
                return unlabelled, b""
        return data.columns, b""

    def _check_columns(self, path: str, names: list[str]) -> None:
        needed = self.spec.numeric_columns + self.text_columns + self.label_columns
        wanted = dict.fromkeys(needed + [c for c in self.spec.data.columns if c not in self.spec.label_columns])
        repeated = [name for name in wanted if names.count(name) > 1]
        if repeated:
            raise InputError(f"{path}: the header names {', '.join(repeated)} twice; rename one of them")
        absent = [name for name in wanted if name not in names]
        if absent:
            raise InputError(
                f"{path}: the header lacks {', '.join(absent)}, which the configuration names; "
                f"it has {', '.join(names)}"
            )

    def _parse_options(self, invalid=None) -> pa.csv.ParseOptions:
        is_csv = self.spec.data.format == "csv"
        return pa.csv.ParseOptions(
            delimiter="," if is_csv else "\t",
            quote_char='"' if is_csv else False,
            newlines_in_values=False,
            ignore_empty_lines=False,
            invalid_row_handler=invalid,
        )

    def _count_values(self, line: bytes) -> int:
        """How many values a line without its line end has; 0 where a quote is not closed."""
        if self.spec.data.format != "csv":
            return line.count(b"\t") + 1
        found = list(_CSV_VALUE.finditer(line))
        return len(found) if sum(len(value[0]) for value in found) == len(line) else 0

    def _fault(self, line: bytes, columns: list[str]) -> str:
        """Why Arrow must not see a line (without its line end), "" where it may."""
        if not line and len(columns) > 1:
            return "the line is empty"
        if b"\r" in line:
            return "a carriage return inside the row"
        count = self._count_values(line)
        if not count:
            return "a quote is not closed"
        if count != len(columns) and not _is_utf8(line):
            return f"expected {len(columns)} columns, found {count}"  # Arrow could not hand it back
        return ""

    def _parse(self, path: str, chunk: bytes, first_line: int, columns: list[str]) -> LogBatch:
        total = chunk.count(b"\n") + (not chunk.endswith(b"\n"))
        lines = first_line + np.arange(total)
        if not _is_odd(chunk):
            try:
                return self._parse_lines(path, chunk, lines, columns, [])
            except pa.ArrowInvalid:
                pass  # one line spoils them all: look at each
        good, kept, rejects = [], [], []
        for number, line in enumerate(chunk.split(b"\n")[:total]):
            line = line.removesuffix(b"\r")
            if reason := self._fault(line, columns):
                rejects.append(Reject(first_line + number, reason, line.decode("utf-8", "backslashreplace")))
            else:
                good.append(line)
                kept.append(first_line + number)
        if not good:
            names = self.spec.numeric_columns + self.text_columns + self.label_columns
            table = pa.table({name: pa.array([], pa.binary()) for name in names})
            return self._check(path, table, np.empty(0, np.int64), rejects)
        try:
            return self._parse_lines(path, b"\n".join(good) + b"\n", np.array(kept, np.int64), columns, rejects)
        except pa.ArrowInvalid as error:
            last = first_line + total
            raise InputError(f"{path}: lines {first_line + 1} to {last} cannot be read ({_one_line(error)})") from error

    def _parse_lines(
        self, path: str, chunk: bytes, lines: np.ndarray, columns: list[str], rejects: list[Reject]
    ) -> LogBatch:
        """Parses whole lines, whose numbers are `lines`; `rejects` lay between them.

        Raises:
            pa.ArrowInvalid: a line cannot be parsed, or Arrow took two for one.
        """
        invalid: list[pa.csv.InvalidRow] = []

        def keep(row: pa.csv.InvalidRow) -> str:
            invalid.append(row)
            return "skip"

        wanted = self.spec.numeric_columns + self.text_columns + self.label_columns
        table = pa.csv.read_csv(
            pa.BufferReader(chunk),
            read_options=pa.csv.ReadOptions(column_names=columns, use_threads=False, block_size=len(chunk) + 1),
            parse_options=self._parse_options(keep),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.binary() for name in wanted},
                include_columns=wanted,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                null_values=[""],
                check_utf8=False,
            ),
        )
        if table.num_rows + len(invalid) != len(lines):
            raise pa.ArrowInvalid("a quoted value holds a line break")
        kept = np.ones(len(lines), bool)
        for row in invalid:
            index = row.number - 1
            kept[index] = False
            reason = f"expected {row.expected_columns} columns, found {row.actual_columns}"
            rejects.append(Reject(int(lines[index]), reason, row.text))
        return self._check(path, table, lines[kept], rejects)

    # Parquet --------------------------------------------------------------------------------------------------------

    def _read_parquet(self, path: str) -> Iterator[LogBatch]:
        try:
            file = pa.parquet.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: not a readable Parquet file ({_one_line(error)})") from error
        names = file.schema_arrow.names
        self._check_columns(path, names)
        wanted = self.spec.numeric_columns + self.text_columns + self.label_columns
        line = 0
        try:
            for batch in file.iter_batches(batch_size=65536, columns=wanted):
                table = pa.table({name: _as_binary(path, name, batch.column(name)) for name in wanted})
                yield self._check(path, table, np.arange(line, line + len(table)), [])
                line += len(table)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: the Parquet file is damaged ({_one_line(error)})") from error

    # Values ---------------------------------------------------------------------------------------------------------

    def _check(self, path: str, table: pa.Table, lines: np.ndarray, rejects: list[Reject]) -> LogBatch:
        """Converts values, and moves rows with an impossible value to the rejects."""
        columns: dict[str, pa.Array] = {}
        reasons: dict[int, str] = {}
        for name in self.spec.numeric_columns:
            values = _column(table, name)
            columns[name] = _to_float(values, name, reasons)
        for name in self.text_columns:
            columns[name] = _check_utf8(_column(table, name), name, reasons)
        for name in self.label_columns:
            columns[name] = _to_label(_column(table, name), name, reasons)
        if reasons:
            bad = sorted(reasons)
            rejects = rejects + [Reject(int(lines[row]), reasons[row], _row_text(table, row)) for row in bad]
            good = np.ones(len(lines), bool)
            good[bad] = False
            lines = lines[good]
            columns = {name: array.filter(pa.array(good)) for name, array in columns.items()}
        rejects.sort(key=lambda reject: reject.line)
        return LogBatch(path, pa.RecordBatch.from_pydict(columns), lines, rejects)


def _whole_lines(path: str) -> Iterator[bytes]:
    """The file in pieces of about RANGE_BYTES that end at a line's end."""
    try:
        with _open(path) as file:
            rest = b""
            while block := file.read(RANGE_BYTES):
                end = block.rfind(b"\n") + 1
                if end:
                    yield rest + block[:end]
                    rest = block[end:]
                else:
                    rest += block
            if rest:
                yield rest
    except EOFError as error:
        raise InputError(f"{path}: the gzip file is cut short; copy or write it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: not a valid gzip file ({_one_line(error)})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _open(path: str) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if path.endswith(".gz") else open(path, "rb")


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


def _is_odd(chunk: bytes) -> bool:
    """Whether there are lines that Arrow takes for others (empty, with a lone \\r) or cannot hand back."""
    empty = chunk.startswith((b"\n", b"\r\n")) or b"\n\n" in chunk or b"\n\r\n" in chunk
    return empty or chunk.count(b"\r") != chunk.count(b"\r\n") or not _is_utf8(chunk)


def _column(table: pa.Table, name: str) -> pa.Array:
    combined = table.column(name).combine_chunks()
    return combined.combine_chunks() if isinstance(combined, pa.ChunkedArray) else combined


def _to_float(values: pa.Array, name: str, reasons: dict[int, str]) -> pa.Array:
    try:
        numbers = pc.cast(values.view(pa.string()), pa.float32())
        if pc.all(pc.is_finite(numbers)).as_py() in (True, None):  # None: there are only missing values
            return numbers
    except pa.ArrowInvalid:
        pass
    is_number = pc.fill_null(pc.match_substring_regex(values, _NUMBER.decode()), True)
    numbers = pc.cast(pc.if_else(is_number, values, pa.scalar(None, pa.binary())).view(pa.string()), pa.float32())
    in_range = pc.fill_null(pc.is_finite(numbers), True)
    for good, reason in ((is_number, "is not a number"), (in_range, "is too large for a 32-bit float")):
        for row in np.flatnonzero(~good.to_numpy(zero_copy_only=False)):
            shown = values[int(row)].as_py().decode("utf-8", "replace")
            reasons.setdefault(int(row), f"{name}: '{shown}' {reason}")
    return numbers


def _check_utf8(values: pa.Array, name: str, reasons: dict[int, str]) -> pa.Array:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        for row, value in enumerate(values.to_pylist()):
            if value is not None and not _is_utf8(value):
                reasons.setdefault(row, f"{name}: invalid UTF-8")
    return values


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _to_label(values: pa.Array, name: str, reasons: dict[int, str]) -> pa.Array:
    one = pc.is_in(values, value_set=pa.array([b"1", b"1.0"]))
    zero = pc.is_in(values, value_set=pa.array([b"0", b"0.0"]))
    good = pc.or_(one, zero).to_numpy(zero_copy_only=False)
    for row in np.flatnonzero(~good):
        value = values[int(row)].as_py()
        shown = "nothing" if value is None else f"'{value.decode('utf-8', 'replace')}'"
        reasons.setdefault(int(row), f"{name}: the label must be 0 or 1, found {shown}")
    return one.cast(pa.float32())


def _as_binary(path: str, name: str, values: pa.Array) -> pa.Array:
    """A Parquet column as the bytes that a text file would hold; an empty string is missing."""
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.int8())
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_floating(values.type):
        values = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)  # NaN is a number that is missing
    try:
        values = values if pa.types.is_binary(values.type) else values.cast(pa.string()).cast(pa.binary())
    except pa.ArrowException as error:
        raise InputError(f"{path}: column {name} of type {values.type} cannot be read as a value per row") from error
    return pc.if_else(pc.equal(pc.binary_length(values), 0), pa.scalar(None, pa.binary()), values)


def _row_text(table: pa.Table, row: int) -> str:
    values = (column[row].as_py() or b"" for column in table.columns)
    return "\t".join(value.decode("utf-8", "backslashreplace") for value in values)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
