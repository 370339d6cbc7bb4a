"""Splits a log's text into lines and finds the lines that Arrow would misread."""

import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError

# Large enough for Arrow to be fast, small enough for the CPU cache.
CHUNK_BYTES = 1 << 21
_BLOCK = 64  # lines
_CONTROL_BYTES = [bytes([code]) for code in (31, 30, 29, 28, *range(1, 9), *range(14, 28))]
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_MAX_RECORD_BYTES = 1 << 20  # of a record with line breaks; a quote that stays open for longer is an error


class Lines:
    """The lines of a text, by their index from 0.

    Args:
        text: Whole lines; the last may lack its line break.
        delimiter: Separates the values of a line.
        quoted: Whether values may be quoted.
        joined: First and last line of each record that spans several lines; such a record counts as one line.
    """

    def __init__(self, text: bytes, delimiter: bytes, quoted: bool, joined: Sequence[tuple[int, int]] = ()):
        if not text.endswith(b"\n"):
            text = text.removesuffix(b"\r") + b"\n"
        self.text = text
        self._delimiter = delimiter
        self._quoted = quoted
        self._bytes = np.frombuffer(text, np.uint8)
        self._ends = np.flatnonzero(self._bytes == ord("\n"))
        self.breaks = len(self._ends)
        # The number of line breaks before each line.
        self.numbers = np.arange(self.breaks)
        if joined:
            inner = np.concatenate([np.arange(first, last) for first, last in joined])
            self._ends, self.numbers = np.delete(self._ends, inner), np.delete(self.numbers, inner + 1)
        self._starts = np.append(0, self._ends[:-1] + 1)

    @classmethod
    def of_records(cls, records: Sequence[bytes], numbers: Sequence[int], breaks: int) -> "Lines":
        """Returns records that were not found by line breaks, as one line each.

        Args:
            records: The records, at least one, without line breaks.
            numbers: The number of line breaks in the text before each record.
            breaks: The number of line breaks in the text.
        """
        lines = cls(b"\n".join(records) + b"\n", b"", quoted=False)
        lines.numbers, lines.breaks = np.array(numbers), breaks
        return lines

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> bytes:
        """Returns a line without its line break."""
        return self.text[self._starts[index] : self._ends[index]].removesuffix(b"\r")

    def without(self, lines: list[int]) -> bytes:
        """Returns the text without the given lines; the indices must be ascending."""
        if not lines:
            return self.text
        starts = [0, *(self._ends[lines] + 1).tolist()]
        ends = [*self._starts[lines].tolist(), len(self.text)]
        return b"".join([self.text[start:end] for start, end in zip(starts, ends, strict=True)])

    def not_utf8(self) -> list[int]:
        """Returns the lines that are not valid UTF-8."""
        if _is_utf8_text(self.text):
            return []
        blocks = [(first, min(first + _BLOCK, len(self))) for first in range(0, len(self), _BLOCK)]
        return [line for first, stop in blocks for line in self._not_utf8(first, stop)]

    def _not_utf8(self, first: int, stop: int) -> list[int]:
        if is_utf8(self.text[self._starts[first] : self._ends[stop - 1]]):
            return []
        if stop - first == 1:
            return [first]
        middle = (first + stop) // 2
        return self._not_utf8(first, middle) + self._not_utf8(middle, stop)

    def faults(self, width: int, not_utf8: list[int]) -> dict[int, str]:
        """Returns the lines that Arrow would misread, in order, with the reason for each."""
        suspects = np.concatenate([self._empty(), self._with_lone_return(), self._with_odd_quotes(), not_utf8])
        faults = ((line, self._fault(self[line], width)) for line in np.unique(suspects.astype(np.int64)).tolist())
        return {line: fault for line, fault in faults if fault}

    def _fault(self, line: bytes, width: int) -> str:
        if not line and width > 1:
            return "the line is empty"
        if _LONE_RETURN.search(line):
            return "a carriage return inside the row"
        count = count_values(line, self._delimiter, self._quoted)
        if not count:
            return "a quote is not closed"
        if count != width and not is_utf8(line):
            return f"expected {width} columns, found {count}"  # Arrow's handler gets only valid UTF-8
        return ""

    def _empty(self) -> np.ndarray:
        return np.flatnonzero(self._ends - self._starts <= 1)  # one byte may be \r

    def _with_lone_return(self) -> np.ndarray:
        if b"\r" not in self.text:
            return np.empty(0, np.int64)
        returns = np.flatnonzero(self._bytes == ord("\r"))
        return self._lines_at(returns[self._bytes[returns + 1] != ord("\n")])

    def _with_odd_quotes(self) -> np.ndarray:
        """Returns lines with an odd number of quotes, or with a quote inside a value that does not begin with one.

        In all other lines, every second quote closes a value or is the first half of a doubled quote.
        """
        if not self._quoted or b'"' not in self.text:
            return np.empty(0, np.int64)
        quotes = np.flatnonzero(self._bytes == ord('"'))
        first = np.searchsorted(quotes, self._starts)
        counts = np.diff(first, append=len(quotes))
        opening = quotes[(np.arange(len(quotes)) - np.repeat(first, counts)) % 2 == 0]
        before = self._bytes[opening - 1]  # at the first byte: index -1, the last line break
        after_delimiter = np.ones(len(opening), bool)
        for back, byte in enumerate(reversed(self._delimiter), 1):
            after_delimiter &= self._bytes[opening - back] == byte
        inside = opening[~after_delimiter & (before != ord("\n")) & (before != ord('"'))]
        return np.concatenate([np.flatnonzero(counts % 2), self._lines_at(inside)])

    def _lines_at(self, positions: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._ends, positions)


def count_values(line: bytes, delimiter: bytes, quoted: bool) -> int:
    """Returns the number of values of a line without its line break; 0 if a quote is not closed."""
    if not quoted:
        return line.count(delimiter) + 1
    one_byte = single_byte(line, delimiter)
    if one_byte != delimiter:
        line, delimiter = line.replace(delimiter, one_byte), one_byte
    values = list(_quoted_value(delimiter).finditer(line))
    return len(values) if sum(len(value[0]) for value in values) == len(line) else 0


def single_byte(text: bytes, delimiter: bytes) -> bytes:
    """Returns a one-byte delimiter, or for a longer one a byte that can replace it because the text does not contain
    it.

    Raises:
        InputError: the text contains all possible bytes.
    """
    if len(delimiter) == 1:
        return delimiter
    free = next((byte for byte in _CONTROL_BYTES if byte not in text), None)
    if free is None:
        raise InputError(
            f"data.delimiter {delimiter.decode()!r}: the text has every control character; convert the file"
        )
    return free


@functools.cache
def _quoted_value(delimiter: bytes) -> re.Pattern[bytes]:
    """Returns a pattern of one value as Arrow reads it.

    A quote is special only at the beginning of a value; text after the closing quote is kept.
    """
    d = re.escape(delimiter)
    return re.compile(rb'(?:^|%b)(?:"(?:[^"]|"")*"(?!")[^%b\n]*|[^"%b\n][^%b\n]*|(?=%b|$))' % (d, d, d, d, d))


def is_utf8(value: bytes) -> bool:
    """Returns whether a value is valid UTF-8."""
    try:
        value.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _is_utf8_text(text: bytes) -> bool:
    """Returns whether a text is valid UTF-8, without creating a Python string."""
    offsets = pa.py_buffer(np.array([0, len(text)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, pa.py_buffer(text)]).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def whole_lines(file: IO[bytes], length: int | None = None) -> Iterator[bytes]:
    """Yields the rest of a file, at most `length` bytes, in chunks of whole lines.

    The last line may lack its line break.
    """
    pieces: list[bytes] = []
    bytes_left = length
    while block := file.read(CHUNK_BYTES if bytes_left is None else min(CHUNK_BYTES, bytes_left)):
        bytes_left = None if bytes_left is None else bytes_left - len(block)
        if end := block.rfind(b"\n") + 1:
            yield b"".join([*pieces, block[:end]])
            pieces = [block[end:]] if end < len(block) else []
        else:
            pieces.append(block)
    if pieces:
        yield b"".join(pieces)


def end_of_rows(text: bytes) -> int:
    """Returns the length of a text of whole lines without its empty last lines; 0 if all lines are empty."""
    last = text[-4:]
    if last.count(b"\n") < 2 and last.strip(b"\r\n"):  # the usual end, without a copy of the text
        return len(text)
    stop = len(text.rstrip(b"\r\n"))
    return (text.find(b"\n", stop) + 1 or len(text)) if stop else 0


def without_empty_end(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yields chunks of whole lines without the text's empty last lines. A text of empty lines only is unchanged."""
    held: list[bytes] = []  # empty lines, which are malformed rows if another row follows
    are_all_empty = True
    for chunk in chunks:
        stop = end_of_rows(chunk)
        if stop:
            yield from held
            held, are_all_empty = [], False
            yield chunk[:stop]
        if stop < len(chunk):
            held.append(chunk[stop:])
    if are_all_empty:
        yield from held


def whole_records(chunks: Iterable[bytes], delimiter: bytes, width: int) -> Iterator[Lines]:
    """Yields a text as records, which may have line breaks in quoted values (RFC 4180).

    If a quote is never closed, or the record does not have `width` values, only the line with the quote is malformed.

    Args:
        chunks: The text, in chunks of whole lines.
        delimiter: Separates the values.
        width: The number of values of a row.
    """
    rest = b""
    for chunk in itertools.chain(chunks, [b""]):
        text = rest + chunk
        joined, unfinished = _joined_lines(text, delimiter, width, is_last=not chunk)
        text, rest = text[:unfinished], text[unfinished:]
        if text:
            yield Lines(text, delimiter, True, joined)


def _joined_lines(text: bytes, delimiter: bytes, width: int, is_last: bool) -> tuple[list[tuple[int, int]], int]:
    """Returns the first and last line of each multi-line record, and the position of an unfinished record."""
    values = np.frombuffer(text, np.uint8)
    ends = np.flatnonzero(values == ord("\n"))
    if not text.endswith(b"\n"):
        ends = np.append(ends, len(text))
    starts = np.append(0, ends[:-1] + 1)
    quotes = np.searchsorted(np.flatnonzero(values == ord('"')), np.append(starts, len(text)))
    odd = np.flatnonzero(np.diff(quotes) % 2).tolist()  # in all other lines the quotes are closed
    joined: list[tuple[int, int]] = []
    place = 0
    while place < len(odd) - 1:
        first, last = odd[place], odd[place + 1]
        record = text[starts[first] : ends[last]].removesuffix(b"\r")
        is_record = len(record) <= _MAX_RECORD_BYTES and count_values(record, delimiter, True) == width
        if is_record:
            joined.append((first, last))
        place += 2 if is_record else 1
    if is_last or place == len(odd) or len(text) - starts[odd[place]] > _MAX_RECORD_BYTES:
        return joined, len(text)
    return joined, int(starts[odd[place]])
