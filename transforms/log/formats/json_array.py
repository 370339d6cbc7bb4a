"""A JSON array of objects, on one or several lines. A row's line number is the line in which its object begins."""

import contextlib
import dataclasses
import re
from collections.abc import Iterator, Sequence
from typing import IO

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log import files
from ctrpipe.transforms.log.batches import RawBatch
from ctrpipe.transforms.log.files import Range, input_errors, no_rows, open_stored
from ctrpipe.transforms.log.first_bytes import BYTE_ORDER_MARK
from ctrpipe.transforms.log.formats.json_lines import JsonText
from ctrpipe.transforms.log.lines import CHUNK_BYTES, Lines

_START = re.compile(rb"\s*\[")
_END = re.compile(rb"\s*\]\s*\Z")
_END_BYTES = 1 << 12
_MOST_BYTES = 1 << 26  # of one object: more means that a bracket or a quote is missing
_QUOTE, _COMMA = ord('"'), ord(",")
_DEPTHS = np.zeros(256, np.int8)
_DEPTHS[list(b"{[")] = 1
_DEPTHS[list(b"}]")] = -1
_IS_SIGN = np.isin(np.arange(256), list(b'"{}[],'))


class _NoOneArrayError(Exception):
    """The text is not the inside of one array. The arguments are the problem, and its line relative to the text."""


class JsonArray(JsonText):
    """Reads an array of objects. An uncompressed UTF-8 file is scanned once, and cut between objects."""

    def _head(self, path: str, first: bytes) -> tuple[Sequence[str], bytes]:
        if not first:
            raise no_rows(path)
        text = first.removeprefix(BYTE_ORDER_MARK)
        match = _START.match(text)
        if not match:
            raise InputError(f"{path}: not a JSON array, but data.format is json; is the log jsonl, tsv or csv?")
        return [], first[: len(first) - len(text) + match.end()]

    def _no_rows_at_end(self, path: str, names: Sequence[str], start: int, stop: int) -> int:
        size = _END_BYTES
        with open_stored(path) as file:
            while True:
                first = max(start, stop - size)
                file.seek(first)
                block = file.read(stop - first)
                if match := _END.search(block):
                    if first + match.start() == start:
                        raise no_rows(path)
                    return len(block) - match.start()
                if block.strip() or first == start:
                    raise _not_closed(path)
                size *= 2

    def ranges(self, path: str) -> list[Range]:
        [whole] = self.whole(path)
        if whole.length is None or whole.size <= files.RANGE_BYTES:
            return [whole]
        ranges: list[Range] = []
        start, line, position, next_line = whole.start, whole.line, whole.start, whole.line
        stop = whole.start + whole.length - whole.empty_end
        with input_errors(path), open_stored(path) as file, _errors_of(path, whole.line):
            file.seek(start)
            for objects in _objects(_blocks(file, stop - start)):
                position, next_line = position + objects.size, next_line + objects.breaks
                if position - start >= files.RANGE_BYTES and position < stop:
                    size = position - start
                    ranges.append(
                        dataclasses.replace(whole, start=start, length=size, line=line, size=size, empty_end=0)
                    )
                    start, line = position, next_line
        size = stop - start
        return [
            *ranges,
            dataclasses.replace(whole, start=start, length=size + whole.empty_end, line=line, size=size),
        ]

    def read(self, part: Range) -> Iterator[RawBatch]:
        with _errors_of(part.path, part.line):
            yield from super().read(part)

    def _chunks(self, path: str, file: IO[bytes], length: int | None, names: Sequence[str]) -> Iterator[bytes]:
        return _blocks(file, length) if length is not None else _without_end(path, _blocks(file, None))

    def _lines(self, chunks: Iterator[bytes], names: Sequence[str]) -> Iterator[Lines]:
        for objects in _objects(chunks):
            yield Lines.of_records(objects.texts, objects.lines, objects.breaks)


def first_objects(path: str, text: bytes) -> list[bytes]:
    """Returns the complete objects in the first bytes of an array, each without line breaks.

    Args:
        path: The file, for messages.
        text: The first bytes of the file, in UTF-8.

    Raises:
        InputError: the text is not the beginning of an array.
    """
    inside = _START.sub(b"", text.removeprefix(BYTE_ORDER_MARK), count=1)
    end = _END.search(inside)
    with _errors_of(path, 1):
        if end:
            return [each for objects in _objects(iter([inside[: end.start()]])) for each in objects.texts]
        commas, _ = _commas(inside, 0)
        return _cut(inside, commas.tolist()).texts if commas.size else []


@contextlib.contextmanager
def _errors_of(path: str, first_line: int) -> Iterator[None]:
    """Converts _NoOneArrayError to InputError. `first_line` is the line number at which the text begins."""
    try:
        yield
    except _NoOneArrayError as error:
        wrong, lines = error.args
        raise InputError(f"{path}: line {first_line + lines}: {wrong}; correct it, or write the file again") from error


def _not_closed(path: str) -> InputError:
    return InputError(f"{path}: the JSON array is not closed; copy or write the file again")


def _blocks(file: IO[bytes], length: int | None) -> Iterator[bytes]:
    """Yields the rest of a file, at most `length` bytes."""
    left = length
    while block := file.read(CHUNK_BYTES if left is None else min(CHUNK_BYTES, left)):
        left = None if left is None else left - len(block)
        yield block


def _without_end(path: str, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields blocks without the closing bracket of the array.

    Raises:
        InputError: there is no closing bracket.
    """
    held = b""
    for block in blocks:
        if block.strip() and held:
            yield held
            held = b""
        held += block
    match = _END.search(held)
    if not match:
        raise _not_closed(path)
    if match.start():
        yield held[: match.start()]


@dataclasses.dataclass(frozen=True)
class _Objects:
    """Consecutive elements of an array.

    Attributes:
        texts: Each element, without line breaks.
        lines: The line in which each element begins, from 0.
        breaks: The number of line breaks up to the next element.
        size: The number of bytes up to the next element.
    """

    texts: list[bytes]
    lines: list[int]
    breaks: int
    size: int


def _objects(blocks: Iterator[bytes]) -> Iterator[_Objects]:
    """Yields the elements of an array, given the text between its brackets.

    Raises:
        _NoOneArrayError: the array ends before the last block, or an element does not end.
    """
    rest, lines = b"", 0
    for block in blocks:
        text = rest + block
        commas, _ = _commas(text, lines)
        if commas.size:
            objects = _cut(text, commas.tolist())
            yield objects
            lines += objects.breaks
            rest = text[objects.size :]
        else:
            rest = text
        if len(rest) > _MOST_BYTES:
            raise _NoOneArrayError("an object does not end", lines + _blank_lines(rest))
    if rest.strip():
        _, is_open = _commas(rest, lines)
        if is_open:
            raise _NoOneArrayError("an object does not end", lines + _blank_lines(rest))
        yield _cut(rest, [len(rest)])


def _cut(text: bytes, ends: list[int]) -> _Objects:
    """Returns the elements that end at the given positions, without the commas."""
    starts = [0, *(end + 1 for end in ends[:-1])]
    pieces = [text[start:end] for start, end in zip(starts, ends, strict=True)]
    breaks = np.array([piece.count(b"\n") for piece in pieces])
    before = np.append(0, np.cumsum(breaks)[:-1]) + [_blank_lines(piece) for piece in pieces]
    # A line break inside a string is malformed JSON, and so is a carriage return.
    texts = [piece.strip().replace(b"\n", b"\r") for piece in pieces]
    return _Objects(texts, before.tolist(), int(breaks.sum()), min(ends[-1] + 1, len(text)))


def _blank_lines(piece: bytes) -> int:
    """Returns the number of line breaks before the first non-blank character."""
    return piece.count(b"\n", 0, len(piece) - len(piece.lstrip()))


def _commas(text: bytes, lines: int) -> tuple[np.ndarray, bool]:
    """Returns the positions of the commas between elements, and whether the last element is incomplete.

    Args:
        text: The text, which begins with an element or the blanks before it.
        lines: The number of lines before the text.

    Raises:
        _NoOneArrayError: the array ends in the text.
    """
    # Pairs of backslashes first: the quote after one is not escaped.
    plain = text.replace(b"\\\\", b"  ").replace(b'\\"', b"  ") if b"\\" in text else text
    signs = np.frombuffer(plain, np.uint8)
    places = np.flatnonzero(_IS_SIGN[signs])
    signs = signs[places]
    is_quote = signs == _QUOTE
    is_inside = np.cumsum(is_quote) % 2 == 1  # a string's first quote is inside, its last is not
    is_outside = ~(is_inside | is_quote)
    depths = np.cumsum(_DEPTHS[signs] * is_outside, dtype=np.int64)
    if depths.size and depths.min() < 0:
        place = int(places[np.argmax(depths < 0)])
        raise _NoOneArrayError("a bracket closes nothing", lines + text.count(b"\n", 0, place))
    commas = places[(signs == _COMMA) & is_outside & (depths == 0)]
    return commas, bool(depths.size and (depths[-1] or is_inside[-1]))
