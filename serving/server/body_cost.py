"""Estimates the memory of a parsed JSON body. Two bytes of text can take a hundred bytes.

The estimate is fast: it counts commas, brackets, braces and colons outside strings. It is an upper bound on the total
memory of the parsers, the arrays, TensorFlow and the response text, as measured by `python -m tests.attack`.
"""

import dataclasses
import math
import sys
import time
from collections.abc import Callable

import numpy as np

from ctrpipe.serving.server.errors import ServingError, bad_request

TIMES_SIZE = 4  # a body may take this many times its own size, plus --max_json_memory_bytes
# Bytes per element, measured with the most expensive parser.
_VALUE, _STRING, _LIST, _OBJECT, _MEMBER, _LEVEL = 112, 184, 176, 272, 32, 240
_MEMBER_SAVES = 58  # bytes saved by a number that is a member: each column is one array
_MOST_COLUMNS = 4096  # members per object; rows have no more
_OWN_NAME = 32  # bytes of a member's name that is in no other object
_TEXT = 11  # bytes per byte of a string: as str, bytes, TensorFlow string and response text
_BODY = 1
# The worst case, in bytes per byte of a body: a body of opening brackets only.
_WORST = _VALUE + _OBJECT + _LEVEL
# A short body takes at most 10 MB, and usually 16 times its size: counting its marks is not worth the time.
_UNCOUNTED_BYTES, _USUAL = 16 << 10, 16
_PIECE_BYTES = 1 << 20
_MARKS = b',[{:"'
_SINGLE_ROW = 320  # bytes per value if rows are read one by one, not in bulk
_FEATURE = 400  # bytes per feature of one example: in Python, as a tf.Example, and in TensorFlow's parser
CHECK_EVERY = 1000  # values between checks of the time


def _never() -> bool:
    return False


@dataclasses.dataclass(slots=True)
class Reading:
    """Limits of time and memory for reading one request.

    Attributes:
        is_over: Returns whether the client no longer waits for the response.
        spare_bytes: Bytes of memory that the request may take in addition to four times its body's size.
        deadline: The deadline on the monotonic clock, in seconds.
    """

    is_over: Callable[[], bool] = _never
    spare_bytes: int = sys.maxsize
    deadline: float = math.inf

    def seconds_left(self) -> float:
        """Returns the seconds until the deadline; 0 or less once it has passed."""
        return self.deadline - time.monotonic()

    def check_time(self) -> None:
        """Raises ServingError if the client no longer waits for the response."""
        if self.is_over():
            raise ServingError("DEADLINE_EXCEEDED", "Timed out waiting for notification")

    def check_features(self, count: int) -> None:
        """Raises ServingError if an example of `count` features would take too much memory."""
        if count * _FEATURE > self.spare_bytes:
            raise bad_request(
                f"An example of {count} features would take more than --max_json_memory_bytes={self.spare_bytes}; "
                "send the features that the model reads"
            )

    def check_single_rows(self, count: int) -> None:
        """Raises ServingError if `count` values would take too much memory when rows are read one by one.

        Rows are read one by one if they differ in kind or shape.
        """
        if count * _SINGLE_ROW > self.spare_bytes:
            raise bad_request(
                f"The rows of 'instances' differ in kind or shape, and {count} of them would take more than "
                f"--max_json_memory_bytes={self.spare_bytes}; send fewer rows at a time"
            )


def check_cost(body: bytes, spare_bytes: int, max_depth: int) -> int:
    """Returns the estimated bytes of a parsed body. Refuses a body that would take too much or is nested too deeply.

    Args:
        body: The decompressed body.
        spare_bytes: Bytes of memory that the body may take in addition to four times its size.
        max_depth: Maximum number of nested lists and objects.

    Raises:
        ServingError: the body exceeds one of the limits.
    """
    size = len(body)
    if size <= _UNCOUNTED_BYTES and size * _WORST <= spare_bytes and size <= max_depth:
        return _USUAL * size
    most = spare_bytes + TIMES_SIZE * size
    commas, lists, objects, colons, quotes = (count_byte(body, mark) for mark in _MARKS)
    counts: tuple[int, ...] = (commas, lists, objects, colons, quotes)
    depth = lists + objects
    cost = _cost(size, counts, depth, size)
    if depth <= max_depth and cost <= most:
        return cost  # the counts include marks inside strings
    counts, depth, text = _count_outside_strings(body)
    if depth > max_depth:
        raise bad_request(f"The request's body is nested in {depth} levels, above --max_json_depth={max_depth}")
    cost = _cost(size, counts, depth, text) - _saved(counts)
    if cost > most:
        raise bad_request(
            f"The request's body of {size} bytes would take {cost} bytes of memory, above {most}: "
            f"--max_json_memory_bytes={spare_bytes} and {TIMES_SIZE} times its size; send fewer values at a time"
        )
    return cost


def count_byte(body: bytes, mark: int) -> int:
    """Returns the number of occurrences of a byte.

    numpy compares many bytes at a time; bytes.count stops at each match.
    """
    pieces = (np.frombuffer(body, np.uint8, min(_PIECE_BYTES, len(body) - start), start) for start in _starts(body))
    return sum(int(np.count_nonzero(piece == mark)) for piece in pieces)


def _starts(body: bytes) -> range:
    return range(0, len(body), _PIECE_BYTES)


def _cost(size: int, counts: tuple[int, ...], depth: int, text: int) -> int:
    """Returns an upper bound of the bytes that a body takes.

    Args:
        size: Size of the body in bytes.
        counts: Numbers of commas, opening brackets, opening braces, colons and quotation marks.
        depth: Levels of nested lists and objects.
        text: Bytes inside strings.
    """
    _, lists, objects, colons, _ = counts
    strings = _strings(counts)
    return (
        _BODY * size
        + _VALUE * _plain_values(counts)
        + _STRING * strings
        + _LIST * lists
        + _OBJECT * objects
        + (_MEMBER + _OWN_NAME * _has_own_names(counts)) * colons
        + _LEVEL * depth
        + _TEXT * text
    )


def _strings(counts: tuple[int, ...]) -> int:
    """Returns the number of string values. A member's name is stored once for all rows."""
    *_, colons, quotes = counts
    return max(quotes // 2 - colons, 0)


def _plain_values(counts: tuple[int, ...]) -> int:
    """Returns the number of values that are not strings, lists or objects."""
    commas, lists, objects, _, _ = counts
    values = commas + lists + objects + 1  # each value begins a list or an object, or follows a comma
    return max(values - _strings(counts) - lists - objects, 0)


def _saved(counts: tuple[int, ...]) -> int:
    """Returns by how many bytes `_cost` overestimates rows that are objects.

    The counts must exclude marks inside strings.
    """
    *_, colons, _ = counts
    return 0 if _has_own_names(counts) else _MEMBER_SAVES * min(colons, _plain_values(counts))


def _has_own_names(counts: tuple[int, ...]) -> bool:
    """Returns whether members have names that are in no other object: a row has no such number of columns."""
    _, _, objects, colons, _ = counts
    return colons > _MOST_COLUMNS * objects


def _count_outside_strings(body: bytes) -> tuple[tuple[int, ...], int, int]:
    """Returns the counts of `,[{:"` outside of strings, the deepest level, and the bytes inside strings.

    Counting with numpy lets other threads run meanwhile.
    """
    marks = np.zeros(5, np.int64)
    level = deepest = text = 0
    inside = False
    escapes = False  # the previous piece ended inside an escape
    for start in _starts(body):
        piece = np.frombuffer(body, np.uint8, min(_PIECE_BYTES, len(body) - start), start)
        quotes, escapes = _quotes(piece, escapes)
        within = np.bitwise_xor.accumulate(quotes) ^ inside
        outside = ~within
        text += int(np.count_nonzero(within & ~quotes))
        opening = ((piece == ord("[")) | (piece == ord("{"))) & outside
        closing = ((piece == ord("]")) | (piece == ord("}"))) & outside
        if opening.any() or closing.any():
            levels = level + np.cumsum(opening.astype(np.int8) - closing.astype(np.int8), dtype=np.int64)
            deepest, level = max(deepest, int(levels.max())), int(levels[-1])
        marks += [np.count_nonzero((piece == mark) & outside) for mark in _MARKS[:-1]] + [np.count_nonzero(quotes)]
        inside = bool(within[-1])
    return tuple(map(int, marks)), deepest, text


def _quotes(piece: np.ndarray, escapes: bool) -> tuple[np.ndarray, bool]:
    """Returns which quotation marks delimit strings, and whether the next piece's first byte is escaped.

    A byte is escaped after an odd number of backslashes.
    """
    quotes = piece == ord('"')
    slashes = piece == ord("\\")
    if not escapes and not slashes.any():
        return quotes, False
    # The number of backslashes right before each byte: its distance to the last byte that is not a backslash.
    index = np.arange(len(piece))
    last_other = np.maximum.accumulate(np.where(slashes, -1 - escapes, index))
    run_before = np.concatenate(([escapes], index[:-1] - last_other[:-1]))
    escaped = run_before % 2 == 1
    ends_in = index[-1] - last_other[-1]
    return quotes & ~escaped, bool(ends_in % 2)
