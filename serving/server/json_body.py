"""Parses request bodies as TF Serving's RapidJSON 1.1.0 does (contract J1-J6, J10-J13).

There are three parsers:

1. orjson parses usual bodies, including bodies with NaN (the missing numbers of raw rows).
2. The standard library's C scanner parses bodies that orjson refuses or reads differently: infinities, numbers that
   RapidJSON rounds, repeated members, bytes after the value.
3. A parser that follows RapidJSON step by step handles the rest: errors with their offsets, and strings that are not
   UTF-8.

No library accepts exactly what RapidJSON accepts. `python -m benchmarks.http` compares them on rows of 39 columns with
missing numbers. For 1 and 100 rows this module takes 0.008 and 0.58 ms; orjson 0.002 and 0.20, msgspec 0.002 and 0.23,
but both refuse NaN; python-rapidjson, with RapidJSON's numbers and errors, 0.006 and 0.47. python-rapidjson refuses
strings that are not UTF-8, lone surrogates and nesting beyond Python's stack, and is half as fast as orjson without
NaN.
"""

import contextlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import orjson

from ctrpipe.serving.server.body_cost import CHECK_EVERY, Reading
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.json_values import Objects, shown

_SHORT_BYTES = 1 << 20
_BOM = re.compile(rb"\xef?\xbb?\xbf?")  # RapidJSON skips each of the three bytes if present
_SPACE = re.compile(rb"[ \t\r\n]*")
_TEXT_SPACE = re.compile(r"[ \t\r\n]*")
_DIGITS = re.compile(rb"[0-9]*")
_UNESCAPED = re.compile(rb'[^"\\\x00-\x1f]*')
_HEX = re.compile(rb"[0-9a-fA-F]{4}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_ESCAPES = {b'"': b'"', b"\\": b"\\", b"/": b"/", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_WORDS = {b"t": (b"true", True), b"f": (b"false", False), b"n": (b"null", None)}
_ZEROS = re.compile("0*")
_SIGN_AND_ZEROS = re.compile("[-+]?0*")
_LONG_NUMBER = re.compile(rb"[0-9][0-9.]{15}|[0-9][eE]")
_ZERO_TIMES_A_POWER = re.compile(rb"0[eE]\+?[0-9]{3,}[\s,\]}]")
_NAN, _NULL = b"NaN", b"null"
_TINY_ZEROS = b"0" * 37  # behind the point of a number below float32's smallest normal one, 1.2e-38
_FEW_BYTES = 1 << 10
_PIECE_BYTES = 1 << 18
_FEW_PLACES = 1 << 10  # matches in a piece; random hexadecimal ids have at most half as many
_BEFORE_NUMBERS = b" \t\r\n:,["
_INTEGERS = (-(2**63), 2**64 - 1)
_EXACT_BELOW = 2**53
_BEFORE_LAST_DIGIT = 1.7976931348623157e307


def parse_body(body: bytes, reading: Reading | None = None, reads_doubles: bool = False) -> dict[str, Any]:
    """Returns the request's top-level object.

    Args:
        body: The body.
        reading: The request's limits.
        reads_doubles: Whether numbers become float64: they are then the doubles that RapidJSON reads (J12).

    Raises:
        ServingError: with RapidJSON's text and offset (J1-J3).
    """
    usual = None if reads_doubles and _has_long_numbers(body) else parse_usual_body(body)
    return parse_unusual_body(body, reading) if usual is None else usual


def parse_usual_body(body: bytes) -> dict[str, Any] | None:
    """Parses a body faster than `parse_body`. Returns None if the body is unusual or malformed."""
    value = _with_nans(body) if _has_nan_first(body) else None
    if value is None:
        try:
            value = orjson.loads(body)
        except orjson.JSONDecodeError:
            return None
    if _has_zero_times_a_power(body):  # RapidJSON refuses 0e309
        return None
    return value if isinstance(value, dict) and _has_each_member_once(body, value) else None


def _has_nan_first(body: bytes) -> bool:
    """Returns whether the first NaN is likely a number and not part of a string, by the byte before it."""
    if not _holds(body, _NAN):
        return False
    place = body.find(_NAN)
    return body[place - 1 : place] in _BEFORE_NUMBERS


def _with_nans(body: bytes) -> Any:
    """Parses a body that contains the word NaN.

    orjson reads NaN as null. Returns None if orjson cannot parse the body, or if a string contains the word: there are
    then fewer nulls than words.
    """
    if len(body) > _SHORT_BYTES or _holds(body, _NULL):
        return None
    parts = body.split(_NAN)
    with contextlib.suppress(orjson.JSONDecodeError, RecursionError):
        value = orjson.loads(_NULL.join(parts))
        if type(value) is dict:
            missing = len(parts) - 1 - _put_nans_in_rows(value)
            if not missing or _put_nans(value) == missing:
                return value
    return None


def _put_nans_in_rows(request: dict[str, Any]) -> int:
    """Like `_put_nans` for the direct members of the objects in `instances`, but twice as fast."""
    count = 0
    rows = request.get("instances")
    for row in rows if type(rows) is list else []:
        if type(row) is dict:
            for key, value in row.items():
                if value is None:
                    row[key] = math.nan
                    count += 1
    return count


def _put_nans(place: Any) -> int:
    """Replaces each None in a list or an object by NaN, at any depth. Returns the number of replacements."""
    count = 0
    for key, value in place.items() if type(place) is dict else enumerate(place):
        if value is None:
            place[key] = math.nan
            count += 1
        elif type(value) is dict or type(value) is list:
            count += _put_nans(value)
    return count


def has_booleans(body: bytes) -> bool:
    """Returns whether the body may hold true or false. The words may also be inside strings."""
    return _holds(body, b"true") or _holds(body, b"false")


def has_tiny_numbers(body: bytes) -> bool:
    """Returns whether the body may hold subnormal numbers (P15). The texts may also be inside strings."""
    return _holds(body, b"e-") or _holds(body, b"E-") or _TINY_ZEROS in body


def _has_zero_times_a_power(body: bytes) -> bool:
    if len(body) < _FEW_BYTES:
        return _ZERO_TIMES_A_POWER.search(body) is not None
    for places in itertools.chain(_places(body, b"0e"), _places(body, b"0E")):
        if places.size > _FEW_PLACES:
            return _ZERO_TIMES_A_POWER.search(body) is not None
        if any(_ZERO_TIMES_A_POWER.match(body, place) for place in places.tolist()):
            return True
    return False


def _holds(body: bytes, word: bytes) -> bool:
    """Returns `word in body`, for a word of JSON. Five times faster than bytes.find above 1 KiB."""
    return (len(body) < _FEW_BYTES or any(places.size for places in _places(body, word[-2:]))) and word in body


def _places(body: bytes, pair: bytes) -> Iterator[np.ndarray]:
    """Yields the positions of two adjacent bytes, one array per piece.

    Pieces limit the memory: the body may be long and have the pair everywhere.
    """
    end = body.rfind(pair[1:]) + 1  # ten times faster than the loop below; bodies of numbers have letters only in names
    codes = np.frombuffer(body, np.uint8)[:end]
    for start in range(0, end, _PIECE_BYTES):
        piece = codes[start : start + _PIECE_BYTES + 1]
        yield np.flatnonzero((piece[:-1] == pair[0]) & (piece[1:] == pair[1])) + start


def _has_long_numbers(body: bytes) -> bool:
    """Returns whether RapidJSON may parse a number to a double other than the nearest (J12)."""
    return _LONG_NUMBER.search(body) is not None


def parse_unusual_body(body: bytes, reading: Reading | None = None) -> dict[str, Any]:
    """Parses any body like `parse_body`. Doubles and repeated members are read as RapidJSON reads them."""
    if not body:
        raise bad_request("JSON Parse error: The document is empty")
    value = None
    reading = reading or Reading()
    reading.check_time()
    if len(body) <= _SHORT_BYTES or body.isascii():  # one wide character makes a str four times as large
        with contextlib.suppress(ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
            value = _scan(body, reading)
    if not isinstance(value, dict):
        del value
        value = _JsonParser(body, reading).value()
    if not isinstance(value, dict):
        raise bad_request(f"JSON Value: {shown(value)} Is not object")
    return value


def _has_each_member_once(body: bytes, request: dict[str, Any]) -> bool:
    """Returns whether no object repeats a member. Also returns False if the count of colons is inconclusive."""
    count = _count_members(request)
    if count == body.count(b":"):
        return True
    # Strings hold colons too. The colon after a name follows a quotation mark, or a quotation mark and a space.
    spaced = body.count(b'" :')
    if count != body.count(b'":') + spaced or spaced != body.count(b" :"):
        return False
    return not (b"\n:" in body or b"\t:" in body or b"\r:" in body)


def _count_members(request: dict[str, Any]) -> int:
    """Returns the number of members of the request, of `inputs`, and of objects in lists."""
    count = len(request)
    for value in request.values():
        if type(value) is dict:
            count += len(value) + sum(map(_listed, value.values()))
        else:
            count += _listed(value)
    return count


def _listed(value: object) -> int:
    if type(value) is not list or not value or type(value[0]) is not dict:
        return 0
    return sum(len(item) for item in value if type(item) is dict)


def _scan(body: bytes, reading: Reading) -> Any:
    """Returns the value as parsed by the standard library's scanner.

    Raises ValueError, RecursionError and ServingError.
    """
    if _SURROGATE.search(body):
        raise ValueError("the scanner takes halves of surrogate pairs that RapidJSON refuses")
    text = body[_first_byte(body) :].decode("utf-8")
    decoder = json.JSONDecoder(
        parse_float=_in_time(_scanned_float, reading),
        parse_int=_in_time(_scanned_integer, reading),
        object_pairs_hook=Objects().new,
    )
    start = _TEXT_SPACE.match(text)
    assert start  # the pattern matches an empty text too
    return decoder.raw_decode(text, start.end())[0]


def _in_time(read: Callable[[str], Any], reading: Reading) -> Callable[[str], Any]:
    """Wraps `read` with a periodic check that raises ServingError if the client no longer waits."""
    calls = itertools.count(1)

    def read_in_time(text: str) -> Any:
        if not next(calls) % CHECK_EVERY:
            reading.check_time()
        return read(text)

    return read_in_time


def _first_byte(body: bytes) -> int:
    start = _BOM.match(body)
    assert start  # the pattern matches an empty text too
    return start.end()


def _scanned_float(text: str) -> float:
    if len(text) <= 16 and "e" not in text and "E" not in text:  # at most 15 digits: the nearest double
        return float(text)
    return _read_double(text)


def _scanned_integer(text: str) -> int | float:
    if len(text) <= 20:
        value = int(text)
        if _INTEGERS[0] <= value <= _INTEGERS[1]:
            return value
    return _read_double(text)


def _read_double(text: str) -> float:
    """Returns a JSON number as RapidJSON's ParseNumber computes it, without full precision.

    Raises:
        ValueError: RapidJSON rejects the number as too big.
    """
    sign = -1.0 if text.startswith("-") else 1.0
    mantissa, _, power = text.removeprefix("-").lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    value, digits = _read_whole(whole, _INTEGERS[1] if sign > 0 else -_INTEGERS[0])
    shift = 0
    if not value:  # zeros before the first digit
        shift = -_count_leading(_ZEROS, fraction)
        fraction = fraction[-shift:]
    for digit in fraction:
        if value >= _EXACT_BELOW or isinstance(value, float):
            if digits >= 17:
                break
            value = float(value)
        value = value * 10 + int(digit)
        shift -= 1
        digits += value > 0
    size = power[_count_leading(_SIGN_AND_ZEROS, power) :]
    exponent = int(size[:9] or 0) if len(size) < 10 else 10**9
    if power.startswith("-"):
        exponent = -exponent
    if exponent > 308 - shift:
        raise ValueError(text)
    return sign * _scaled(float(value), exponent + shift)


def _count_leading(pattern: re.Pattern[str], text: str) -> int:
    """Returns how many leading characters match.

    str.lstrip would block other threads for 0.5 s on 60 million zeros.
    """
    match = pattern.match(text)
    assert match  # the patterns match an empty text too
    return match.end()


def _read_whole(digits: str, limit: int) -> tuple[int | float, int]:
    """Returns the number, and how many significant digits follow its first one.

    The number is an integer, or a float above the limit.
    """
    exact = next(count for count in (20, 19, 18) if int(digits[:count]) <= limit)
    value: int | float = int(digits[:exact])
    for digit in digits[exact:]:
        value = float(value)
        if value >= _BEFORE_LAST_DIGIT:
            raise ValueError(digits)
        value = value * 10 + int(digit)
    return value, len(digits[:exact]) - 1


def _scaled(value: float, power: int) -> float:
    """Returns the value times a power of ten, rounded once or twice."""
    if power < -308:
        return _scaled(value / 1e308, power + 308) if power >= -616 else 0.0
    return value * float(f"1e{power}") if power >= 0 else value / float(f"1e{-power}")


class _Container:
    """A list or an object that is being read."""

    __slots__ = ("_items", "closing", "is_object", "name")

    def __init__(self, is_object: bool):
        self.is_object = is_object
        self.closing = b"}" if is_object else b"]"
        self.name = ""
        self._items: list[Any] = []

    def add(self, value: object) -> None:
        self._items.append((self.name, value) if self.is_object else value)

    def finished(self, objects: Objects) -> Any:
        return objects.new(self._items) if self.is_object else self._items


class _JsonParser:
    """A parser without recursion that stops where RapidJSON stops, with RapidJSON's error messages.

    A NUL byte ends the text.
    """

    def __init__(self, body: bytes, reading: Reading | None = None):
        self._reading = reading or Reading()
        self._body = body
        self._objects = Objects()
        self._at = _first_byte(body)

    def value(self) -> Any:
        if self._skip() in (b"", b"]", b"}", b",", b":"):
            raise self._error("The document is empty.")
        stack: list[_Container] = []
        for step in itertools.count(1):
            if not step % CHECK_EVERY:
                self._reading.check_time()
            value = self._start()
            if isinstance(value, _Container):
                stack.append(value)
                continue
            while stack:
                stack[-1].add(value)
                if self._goes_on(stack[-1]):
                    break
                value = stack.pop().finished(self._objects)
            else:
                return value
        raise AssertionError("counting has no end")

    def _peek(self) -> bytes:
        byte = self._body[self._at : self._at + 1]
        return b"" if byte == b"\x00" else byte

    def _take(self, byte: bytes) -> bool:
        matches = self._peek() == byte
        self._at += matches
        return matches

    def _match(self, pattern: re.Pattern[bytes]) -> bytes:
        """Consumes and returns the bytes that match the pattern; may be empty."""
        match = pattern.match(self._body, self._at)
        self._at = match.end() if match else self._at
        return match.group() if match else b""

    def _skip(self) -> bytes:
        """Skips white space and returns the byte after it; empty at the end."""
        self._match(_SPACE)
        return self._peek()

    def _start(self) -> Any:
        """Reads a value. Returns a `_Container` if the value is a list or an object with members."""
        mark = self._skip()
        if mark == b'"':
            return self._string()
        if mark in _WORDS:
            return self._word(*_WORDS[mark])
        if mark not in (b"{", b"["):
            return self._number()
        self._at += 1
        container = _Container(mark == b"{")
        self._skip()
        if self._take(container.closing):
            return container.finished(self._objects)
        if container.is_object:
            container.name = self._name()
        return container

    def _goes_on(self, container: _Container) -> bool:
        """Consumes the comma before the next member or the container's end. Returns whether a member follows."""
        self._skip()
        if self._take(container.closing):
            return False
        if not self._take(b","):
            after = "an object member" if container.is_object else "an array element"
            raise self._error(f"Missing a comma or '{container.closing.decode()}' after {after}.")
        if container.is_object:
            container.name = self._name()
        return True

    def _name(self) -> str:
        if self._skip() != b'"':
            raise self._error("Missing a name for object member.")
        name = self._string()
        self._skip()
        if not self._take(b":"):
            raise self._error("Missing a colon after a name of object member.")
        return name

    def _word(self, word: bytes, value: object) -> Any:
        for byte in word:
            if not self._take(bytes([byte])):
                raise self._error("Invalid value.")
        return value

    def _number(self) -> Any:
        start = self._at
        sign = b"-" if self._take(b"-") else b""
        infinite = None
        if self._peek() in (b"N", b"I"):
            infinite = self._not_finite()
            whole = b"0"  # RapidJSON adds a following fraction or exponent to 0
        else:
            whole = b"0" if self._take(b"0") else self._match(_DIGITS)
        if not whole:
            raise self._error("Invalid value.")
        self._read(sign + whole, start)
        fraction = power = b""
        if self._take(b"."):
            fraction = b"." + self._digits("Miss fraction part in number.")
        if self._peek() in (b"e", b"E"):
            self._at += 1
            minus = b"-" if not self._take(b"+") and self._take(b"-") else b""
            power = b"e" + minus + self._digits("Miss exponent in number.")
        if infinite is not None and not (fraction or power):
            return -infinite if sign else infinite
        return self._read(sign + whole + fraction + power, start)

    def _not_finite(self) -> float:
        """Reads NaN or infinity. RapidJSON also accepts NInf and NaInf."""
        if self._take(b"N") and self._take(b"a") and self._take(b"N"):
            return math.nan
        self._word(b"Inf", None)
        if self._peek() == b"i":
            self._word(b"inity", None)
        return math.inf

    def _read(self, number: bytes, start: int) -> int | float:
        text = number.decode()
        try:
            return _scanned_float(text) if "." in text or "e" in text else _scanned_integer(text)
        except ValueError:
            self._at = start
            raise self._error("Number too big to be stored in double.") from None

    def _digits(self, missing: str) -> bytes:
        digits = self._match(_DIGITS)
        if not digits:
            raise self._error(missing)
        return digits

    def _string(self) -> str:
        self._at += 1
        parts = []
        while True:
            parts.append(self._match(_UNESCAPED))
            if self._take(b'"'):
                return b"".join(parts).decode("utf-8", "surrogateescape")
            if not self._peek():
                raise self._error("Missing a closing quotation mark in string.")
            if self._peek() != b"\\":
                raise self._error("Invalid escape character in string.")
            parts.append(self._escape())

    def _escape(self) -> bytes:
        start = self._at
        mark = self._body[start + 1 : start + 2]
        self._at += 2
        if mark in _ESCAPES:
            return _ESCAPES[mark]
        if mark != b"u":
            raise self._error("Invalid escape character in string.", start)
        code = self._hex(start)
        if 0xD800 <= code < 0xDC00:
            low = self._hex(start) if self._take(b"\\") and self._take(b"u") else 0
            if not 0xDC00 <= low < 0xE000:
                raise self._error("The surrogate pair in string is invalid.", start)
            code = 0x10000 + ((code - 0xD800) << 10 | low - 0xDC00)
        return chr(code).encode("utf-8", "surrogatepass")  # RapidJSON accepts a lone second half of a pair

    def _hex(self, start: int) -> int:
        digits = self._match(_HEX)
        if not digits:
            raise self._error("Incorrect hex digit after \\u escape in string.", start)
        return int(digits, 16)

    def _error(self, reason: str, at: int | None = None) -> ServingError:
        return bad_request(f"JSON Parse error: {reason} at offset: {self._at if at is None else at}")
