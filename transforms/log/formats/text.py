"""Text formats. A row is one line or several."""

import abc
import contextlib
from collections.abc import Iterator, Sequence
from typing import IO, ClassVar

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.transforms.log.batches import RawBatch, Reject
from ctrpipe.transforms.log.files import (
    Range,
    changed,
    cut_lines,
    empty_end,
    first_bytes,
    input_errors,
    is_compressed,
    no_rows,
    open_text,
    state_of,
    text_size,
)
from ctrpipe.transforms.log.first_bytes import HEAD_BYTES, check_text, is_utf8_codec
from ctrpipe.transforms.log.formats.base import Format
from ctrpipe.transforms.log.lines import Lines, whole_lines, without_empty_end
from ctrpipe.transforms.log.spec import LogSpec


class TextFormat(Format):
    """Reads text, plain or compressed. A plain UTF-8 file is cut at line breaks; any other file is a single range."""

    has_escapes: ClassVar[bool] = False
    """Whether a line of valid UTF-8 can hold a value that is not valid UTF-8."""

    def __init__(self, spec: LogSpec, columns: Sequence[str], labels: bool):
        super().__init__(spec, columns, labels)
        self._encoding = spec.data.encoding

    @abc.abstractmethod
    def _head(self, path: str, first: bytes) -> tuple[Sequence[str], bytes]:
        """Returns the column names of a file, and the bytes of its header.

        Args:
            path: The file.
            first: The first HEAD_BYTES of its text, in UTF-8.

        Raises:
            InputError: the file has no bytes, lacks a column, or is of another format.
            OSError: the file cannot be read.
        """

    @abc.abstractmethod
    def _lines(self, chunks: Iterator[bytes], names: Sequence[str]) -> Iterator[Lines]:
        """Yields the lines of a text, given in chunks of whole lines.

        Args:
            chunks: The text.
            names: The file's columns, in order.
        """

    def _written(self, line: bytes) -> bytes:
        """Returns the original text of a line of `_lines`."""
        return line

    @abc.abstractmethod
    def _faults(self, lines: Lines, not_utf8: list[int], width: int) -> dict[int, str]:
        """Returns the lines that `_parse` would misread, with the reason for each.

        Args:
            lines: The lines.
            not_utf8: The indices of lines that are not valid UTF-8.
            width: The file's number of columns.
        """

    @abc.abstractmethod
    def _parse(self, text: bytes, rows: int, names: Sequence[str]) -> tuple[dict[str, pa.Array], dict[int, str]]:
        """Parses whole lines. Returns the columns to read, as binary, and the reasons of malformed rows, by row.

        Args:
            text: The lines without those of `_faults`.
            rows: The number of lines.
            names: The file's columns, in order.

        Raises:
            pa.ArrowInvalid: a line cannot be parsed, or a quoted value spans several lines.
        """

    def whole(self, path: str) -> list[Range]:
        with input_errors(path):
            state = state_of(path)
            with open_text(path) as file:
                first = file.read(HEAD_BYTES)
            check_text(path, first, self._encoding)
            if not is_utf8_codec(self._encoding):
                first = first_bytes(path, HEAD_BYTES, self._encoding)
            names, header = self._head(path, first)
            in_order = is_compressed(path) or not is_utf8_codec(self._encoding)
            if not in_order and state.size == len(header):
                raise no_rows(path)
            length = None if in_order else state.size - len(header)
            size = length or text_size(path)
            rest = 0 if in_order else self._no_rows_at_end(path, names, len(header), state.size)
            if rest == length:  # no other line says that an empty one is none
                rest = 0
        return [Range(path, tuple(names), len(header), length, 1 + header.count(b"\n"), size, state, rest)]

    def _has_empty_rows(self, names: Sequence[str]) -> bool:
        """Returns whether an empty line is a row, given the file's columns. At the end of a file it never is."""
        return False

    def _no_rows_at_end(self, path: str, names: Sequence[str], start: int, stop: int) -> int:
        """Returns the number of bytes at the end of a plain file, from `start` to `stop`, that belong to no row.

        Raises:
            InputError: the file is truncated.
            OSError: the file cannot be read.
        """
        return 0 if self._has_empty_rows(names) else empty_end(path, start, stop)

    def ranges(self, path: str) -> list[Range]:
        [whole] = self.whole(path)
        return [whole] if whole.length is None else list(cut_lines(whole))

    def read(self, part: Range) -> Iterator[RawBatch]:
        line, position = part.line, 0
        with input_errors(part.path), self._rows_of(part) as file:
            length = None if part.length is None else part.length - part.empty_end

            def counted() -> Iterator[bytes]:
                nonlocal position
                for chunk in self._chunks(part.path, file, length, part.columns):
                    position += len(chunk)
                    yield chunk

            for lines in self._lines(counted(), part.columns):
                yield self._batch(part, lines, line)
                line += lines.breaks
        if not position:
            raise no_rows(part.path)
        if length not in (None, position):
            raise changed(part.path)

    def _chunks(self, path: str, file: IO[bytes], length: int | None, names: Sequence[str]) -> Iterator[bytes]:
        """Yields the text of a range in the chunks that `_lines` takes.

        Args:
            path: The file, for messages.
            file: The text.
            length: Its number of bytes; None: up to the end of the file, without its empty last lines.
            names: The file's columns.

        Raises:
            InputError: the text is truncated.
        """
        chunks = whole_lines(file, length)
        return chunks if length is not None or self._has_empty_rows(names) else without_empty_end(chunks)

    @contextlib.contextmanager
    def _rows_of(self, part: Range) -> Iterator[IO[bytes]]:
        """Opens the text of a range, without the file's header."""
        in_order = part.length is None
        stop = None if part.length is None else part.start + part.length
        with open_text(part.path, 0 if in_order else part.start, self._encoding, stop) as file:
            if in_order:
                file.read(part.start)
            yield file

    def _batch(self, part: Range, lines: Lines, first_line: int) -> RawBatch:
        not_utf8 = lines.not_utf8()
        faults = self._faults(lines, not_utf8, len(part.columns))
        kept = np.delete(np.arange(len(lines)), list(faults))
        try:
            columns, wrong = self._parse(lines.without(list(faults)), len(kept), part.columns)
        except pa.ArrowInvalid as error:
            place = f"lines {first_line} to {first_line + lines.breaks - 1}"
            raise InputError(f"{part.path}: {place} cannot be read ({one_line(error, 200)})") from error
        faults.update((int(kept[row]), reason) for row, reason in wrong.items())
        kept = np.delete(kept, list(wrong))
        numbers = first_line + lines.numbers
        suspects: list[int] = np.flatnonzero(np.isin(kept, not_utf8)).tolist() if not_utf8 else []

        def text(line: int) -> str:
            return self._written(lines[line]).decode("utf-8", "backslashreplace")

        return RawBatch(
            path=part.path,
            columns=columns,
            lines=numbers[kept],
            rejects=[Reject(int(numbers[line]), faults[line], text(line)) for line in sorted(faults)],
            faults={},
            not_utf8=None if self.has_escapes else suspects,
            text=lambda row: text(kept[row]),
        )


def first_chunk(path: str, encoding: str) -> bytes:
    """Returns the first lines of a text file, converted to UTF-8.

    Raises:
        InputError: the file has no bytes.
        OSError: the file cannot be read.
    """
    with open_text(path, encoding=encoding) as file:
        chunk = next(whole_lines(file), b"")
    if not chunk:
        raise no_rows(path)
    return chunk
