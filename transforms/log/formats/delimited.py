"""Delimited text: the values of a line are separated by a delimiter."""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.first_bytes import (
    BYTE_ORDER_MARK,
    ONE_BYTE_ENCODING,
    is_json_array,
    is_json_lines,
    is_json_over_lines,
    is_no_row,
    json_document,
    usual_encoding,
)
from ctrpipe.transforms.log.formats.base import check_names
from ctrpipe.transforms.log.formats.notation import Notation
from ctrpipe.transforms.log.formats.text import TextFormat, first_chunk
from ctrpipe.transforms.log.lines import Lines, count_values, is_utf8, single_byte
from ctrpipe.transforms.log.spec import LogSpec

_FEWEST_NAMES = 2  # of columns, before a row that equals them is a header: the only value of a row may be its name
_LINES_LOOKED_AT = 100  # to detect whether a file without a header has labels


class Delimited(TextFormat):
    """Reads delimited text, with or without a header."""

    quoted: ClassVar[bool]
    """Whether values may be quoted."""

    def __init__(self, spec: LogSpec, columns: Sequence[str], labels: bool):
        super().__init__(spec, columns, labels)
        self._delimiter = spec.data.separator.encode()
        escapes, trims = spec.data.escape is not None, spec.data.trim_spaces
        self._notation = Notation(self._delimiter, self.quoted, escapes, trims)

    def _head(self, path: str, first: bytes) -> tuple[Sequence[str], bytes]:
        data, targets = self._spec.data, self._spec.target_columns
        unlabelled = [name for name in data.columns if name not in targets]
        self._check_is_table(path, first)
        if data.header:
            return self._header(path, unlabelled)
        mark = BYTE_ORDER_MARK if first.startswith(BYTE_ORDER_MARK) else b""
        if self._labels:
            self._check_listed(path, data.columns)
            return data.columns, mark
        lines = self._notation.prepared(first_chunk(path, self._encoding)).split(b"\n", _LINES_LOOKED_AT)[
            :_LINES_LOOKED_AT
        ]
        widths = [count_values(line, self._delimiter, self.quoted) for line in lines]
        names = unlabelled if widths.count(len(unlabelled)) > widths.count(len(data.columns)) else data.columns
        self._check_listed(path, names)
        return names, mark

    def _check_listed(self, path: str, names: Sequence[str]) -> None:
        """Raises InputError if a file without a header lacks a column. Its columns are listed in data.columns."""
        if absent := [name for name in self._columns if name not in names]:
            listed = excerpt(", ".join(names))
            raise InputError(f"{path}: its rows lack {absent[0]}; they have {listed}{did_you_mean(absent[0], names)}")

    def _check_is_table(self, path: str, first: bytes) -> None:
        """Raises InputError if a file is JSON: its first line begins as JSON, and is neither a header nor a row."""
        is_array = is_json_array(first)
        if not (is_array or is_json_lines(first) or is_json_over_lines(first)):
            return
        width = count_values(first.split(b"\n")[0].rstrip(b"\r"), self._delimiter, self.quoted)
        if not self._spec.data.header and width == len(self._spec.data.columns) > 1:
            return
        if is_json_over_lines(first):
            raise json_document(path)
        name, form = ("a JSON array", "json") if is_array else ("JSON lines", "jsonl")
        raise InputError(f"{path}: {name}, but data.format is {self._spec.data.format}; write data.format: {form}")

    def _header(self, path: str, listed: Sequence[str]) -> tuple[list[str], bytes]:
        """Returns the column names in the first line, and that line; `listed` must be among the names."""
        first, newline, _ = first_chunk(path, self._encoding).partition(b"\n")
        text = first.removeprefix(BYTE_ORDER_MARK).rstrip(b"\r")
        line, one_byte = self._of_one_byte(self._notation.prepared(text))
        try:
            values = _split_line(line, self._parse_options(one_byte))
        except pa.ArrowInvalid as error:
            raise InputError(f"{path}: the header cannot be read ({excerpt(str(error))})") from error
        values = [self._notation.value(value.replace(one_byte, self._delimiter)) for value in values]  # quoted ones
        names = [value.decode("utf-8", "replace") for value in values]
        wanted = [*self._columns, *listed]
        if not set(wanted) <= set(names):
            if not is_utf8(text):
                raise InputError(
                    f"{path}: the header is not {self._encoding}; write the log's encoding as data.encoding, such as "
                    f"{usual_encoding(text) or ONE_BYTE_ENCODING}"
                )
            if is_no_row(text):
                raise InputError(f"{path}: line 1 is '{excerpt(text)}'; remove the lines above the header")
        check_names(path, names, wanted)
        return names, first + newline

    def _has_empty_rows(self, names: Sequence[str]) -> bool:
        return len(names) == 1

    def _lines(self, chunks: Iterator[bytes], names: Sequence[str]) -> Iterator[Lines]:
        return (Lines(chunk, self._delimiter, self.quoted) for chunk in map(self._notation.prepared, chunks))

    def _written(self, line: bytes) -> bytes:
        return self._notation.written(line)

    def _faults(self, lines: Lines, not_utf8: list[int], width: int) -> dict[int, str]:
        return lines.faults(width, not_utf8)

    def _parse(self, text: bytes, rows: int, names: Sequence[str]) -> tuple[dict[str, pa.Array], dict[int, str]]:
        if not rows:
            return {name: pa.array([], pa.binary()) for name in self._columns}, {}
        wrong: dict[int, str] = {}
        text, one_byte = self._of_one_byte(text)

        def pass_over(row: pa.csv.InvalidRow) -> str:
            wrong[row.number - 1] = f"expected {row.expected_columns} columns, found {row.actual_columns}"
            return "skip"

        table = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(text) + 1),
            parse_options=self._parse_options(one_byte, pass_over),
            convert_options=pa.csv.ConvertOptions(
                column_types={name: pa.binary() for name in self._columns},
                include_columns=self._columns,
                strings_can_be_null=True,
                quoted_strings_can_be_null=True,
                null_values=self._notation.null_values,
                check_utf8=False,
            ),
        )
        if table.num_rows + len(wrong) != rows:
            raise pa.ArrowInvalid("a quoted value holds a line break; set data.quoted_line_breaks")
        columns = {name: _one_chunk(table.column(name)) for name in self._columns}
        if one_byte != self._delimiter and self.quoted and b'"' in text:  # inside quotes it was no delimiter
            columns = {
                name: pc.replace_substring(values, one_byte, self._delimiter) for name, values in columns.items()
            }
        return self._without_headers(
            {name: self._notation.values(columns[name]) for name in columns}, rows, wrong
        ), wrong

    def _without_headers(self, columns: dict[str, pa.Array], rows: int, wrong: dict[int, str]) -> dict[str, pa.Array]:
        """Returns columns without the rows that repeat the header, as where files with a header were joined.

        Args:
            columns: The values of the rows that are not in `wrong`.
            rows: The number of all rows.
            wrong: The reason of each malformed row. Gets the reasons of the headers.
        """
        if not self._spec.data.header or len(columns) < _FEWEST_NAMES:
            return columns
        repeats = pa.array(np.ones(rows - len(wrong), bool))
        for name, values in columns.items():
            repeats = pc.and_(repeats, pc.equal(values, pa.scalar(name.encode(), pa.binary())).fill_null(False))
            if not pc.any(repeats).as_py():  # nearly always by the first column
                return columns
        places = np.delete(np.arange(rows), list(wrong))[repeats.to_numpy(zero_copy_only=False)]
        wrong.update(dict.fromkeys(places.tolist(), "the header again; remove this line from the file"))
        return {name: values.filter(pc.invert(repeats)) for name, values in columns.items()}

    def _of_one_byte(self, text: bytes) -> tuple[bytes, bytes]:
        """Returns the text with a one-byte delimiter, which Arrow requires, and that delimiter."""
        one_byte = single_byte(text, self._delimiter)
        return (text if one_byte == self._delimiter else text.replace(self._delimiter, one_byte)), one_byte

    def _parse_options(
        self, delimiter: bytes, invalid: Callable[[pa.csv.InvalidRow], str] | None = None
    ) -> pa.csv.ParseOptions:
        return pa.csv.ParseOptions(
            delimiter=delimiter.decode(),
            quote_char='"' if self.quoted else False,
            newlines_in_values=self._spec.data.quoted_line_breaks,
            ignore_empty_lines=False,
            invalid_row_handler=invalid,
        )


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
