"""Request bodies, parsed as RapidJSON does in TF Serving (contract J1-J6): NaN and Infinity are numbers, what follows
the first value is ignored, nesting has no limit, and an error has RapidJSON's text and offset in bytes."""

import json
import math
import re
from typing import Any

import orjson

from serving.server.errors import ServingError, bad_request

ECHO_BYTES = 256
_ECHO = json.JSONEncoder(indent=4, ensure_ascii=False)
_SPACE = re.compile(r"[ \t\r\n]*")
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)")
_STRING = re.compile(r'[^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*', re.DOTALL)
_LONE_SURROGATE = re.compile("[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]")
_NO_UTF8 = re.compile("[\udc80-\udcff]")
_WORDS = {"t": ("true", True), "f": ("false", False), "n": ("null", None), "N": ("NaN", math.nan)}


def parse_body(body: bytes) -> dict[str, Any]:
    """Returns the request's top-level object. Raises ServingError with RapidJSON's text and offset (J1-J3)."""
    usual = parse_usual_body(body)
    if usual is not None:
        return usual
    if not body:
        raise bad_request("JSON Parse error: The document is empty")
    value = _JsonParser(body.decode("latin-1")).value()  # one character a byte: offsets are RapidJSON's
    if not isinstance(value, dict):
        raise bad_request(f"JSON Value: {shown(value)} Is not object")
    return value


def parse_usual_body(body: bytes) -> dict[str, Any] | None:
    """Returns the same in little time, None where the body is unusual or wrong."""
    value = _parse(body)
    return value if isinstance(value, dict) else None


def with_first_members(body: bytes, value: dict[str, Any]) -> dict[str, Any]:
    """Returns the parsed body with the first value of a member that is there twice, as TF Serving reads it in a predict
    request. The parsers keep the last one.

    Of a row of `instances` that names an input twice TF Serving takes both, and the rows after it move: not here.
    """
    members = _members(value)
    # Where every colon, or every one after a quotation mark, belongs to a counted member, no member is there twice.
    if members == body.count(b":") or members == body.count(b'":') + body.count(b'" :'):
        return value
    try:
        decoder = json.JSONDecoder(parse_float=_finite, parse_int=_integer, object_pairs_hook=_first)
        text = body.decode("utf-8")
        first: dict[str, Any] = decoder.raw_decode(text, _end_of_space(text))[0]
        return first
    except (ValueError, RecursionError):
        careful: dict[str, Any] = _JsonParser(body.decode("latin-1")).value()
        return careful


def _end_of_space(text: str, start: int = 0) -> int:
    match = _SPACE.match(text, start)
    assert match  # the pattern matches an empty text too
    return match.end()


def _first(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(reversed(pairs)) if len(pairs) > 1 else dict(pairs)


def _members(request: dict[str, Any]) -> int:
    """Returns how many members a request's objects have: its own, those of `inputs`, and those of lists of objects."""
    count = len(request)
    for value in request.values():
        if type(value) is dict:
            count += len(value) + sum(map(_listed, value.values()))
        else:
            count += _listed(value)
    return count


def _listed(value: Any) -> int:
    if type(value) is not list or not value or type(value[0]) is not dict:
        return 0
    return sum(len(item) for item in value if type(item) is dict)


def shown(value: Any) -> str:
    """Returns a value as errors echo it, pretty-printed and cut (J9)."""
    parts, size = [], 0
    for part in _ECHO.iterencode(value):  # lazily: the value may be the whole body
        parts.append(part)
        size += len(part)
        if size > ECHO_BYTES:
            break
    return "".join(parts).encode("utf-8", "surrogateescape")[:ECHO_BYTES].decode("utf-8", "replace")


def _parse(body: bytes) -> Any:
    """Returns the value by the fast parsers, None where it is for the careful one below."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        # The standard library's C scanner takes NaN, Infinity and trailing bytes. It also takes lone surrogates and
        # numbers that no double holds, which RapidJSON refuses.
        text = body.decode("utf-8")
        if "\\u" not in text:
            return json.JSONDecoder(parse_float=_finite, parse_int=_integer).raw_decode(text, _end_of_space(text))[0]
    except (ValueError, RecursionError):  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        pass
    return None


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(text)
    return value


def _integer(text: str) -> int | float:
    value = int(text) if len(text) <= 20 else _finite(text)
    return value if -(2**63) <= value < 2**64 else float(value)


class _JsonParser:
    """A parser without recursion for what the fast ones refuse: unusual numbers, deep nesting, no UTF-8, errors."""

    def __init__(self, text: str):
        self._text = text
        self._at = 0

    def value(self) -> Any:
        stack: list[tuple[Any, str]] = []  # the open containers, each with the key of its open member
        while True:
            value, opened = self._start(empty_is_document=not stack)
            if opened:
                stack.append((value, self._key() if isinstance(value, dict) else ""))
                continue
            while stack:
                container, key = stack.pop()
                if isinstance(container, dict):
                    container.setdefault(key, value)
                else:
                    container.append(value)
                if self._next_member(container):
                    stack.append((container, self._key() if isinstance(container, dict) else ""))
                    break
                value = container
            else:
                return value

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _skip(self) -> str:
        """Skips white space; returns the character after it, "" at the end."""
        self._at = _end_of_space(self._text, self._at)
        return self._peek()

    def _start(self, empty_is_document: bool) -> tuple[Any, bool]:
        """Returns a scalar or empty container and False, or a container whose first member is next and True."""
        mark = self._skip()
        if not mark and empty_is_document:
            raise self._error("The document is empty.")
        if mark not in ("{", "["):
            return self._scalar(mark), False
        self._at += 1
        if self._skip() == ("}" if mark == "{" else "]"):
            self._at += 1
            return ({} if mark == "{" else []), False
        return ({}, True) if mark == "{" else ([], True)

    def _next_member(self, container: Any) -> bool:
        mark, is_object = self._skip(), isinstance(container, dict)
        if mark not in (",", "}" if is_object else "]"):
            raise self._error(
                "Missing a comma or } after an object member."
                if is_object
                else "Missing a comma or ] after an array element."
            )
        self._at += 1
        return mark == ","

    def _key(self) -> str:
        if self._skip() != '"':
            raise self._error("Missing a name for object member.")
        key = self._string()
        if self._skip() != ":":
            raise self._error("Missing a colon after a name of object member.")
        self._at += 1
        return key

    def _scalar(self, mark: str) -> Any:
        if mark == '"':
            return self._string()
        if mark in _WORDS:
            text, value = _WORDS[mark]
            self._word(text)
            return value
        if mark in ("I", "-") or mark.isdecimal():
            return self._number()
        raise self._error("Invalid value.")

    def _word(self, word: str) -> None:
        for character in word:
            if self._peek() != character:
                raise self._error("Invalid value.")
            self._at += 1

    def _number(self) -> Any:
        start = self._at
        sign = -1 if self._peek() == "-" else 1
        self._at += sign < 0
        if self._peek() == "N":
            self._word("NaN")
            return math.nan
        if self._peek() == "I":
            self._word("Inf")
            if self._peek() == "i":
                self._word("inity")
            return sign * math.inf
        digits = _INTEGER.match(self._text, self._at)
        if not digits or self._peek() == "-":
            raise self._error("Invalid value.")
        self._at = digits.end()
        is_float = False
        if self._peek() == ".":
            is_float = True
            self._at += 1
            self._digits("Miss fraction part in number.")
        if self._peek() in ("e", "E"):
            is_float = True
            self._at += 1
            self._at += self._peek() in ("+", "-")
            self._digits("Miss exponent in number.")
        text = self._text[start : self._at]
        try:
            return _finite(text) if is_float else _integer(text)
        except ValueError as error:
            self._at = start
            raise self._error("Number too big to be stored in double.") from error

    def _digits(self, missing: str) -> None:
        start = self._at
        while self._peek() in tuple("0123456789"):
            self._at += 1
        if self._at == start:
            raise self._error(missing)

    def _string(self) -> str:
        start = self._at + 1
        self._at = _STRING.match(self._text, start).end()  # type: ignore[union-attr]
        if self._peek() != '"':
            known = self._peek() not in ("", "\x00")
            raise self._error("Invalid encoding in string." if known else "Missing a closing quotation mark in string.")
        raw = self._text[start : self._at].encode("latin-1").decode("utf-8", "surrogateescape")
        self._at += 1
        if "\\" not in raw:
            return raw
        value: str
        try:
            value = json.loads(f'"{raw}"')
        except json.JSONDecodeError as error:
            self._at = start + len(raw[: error.pos - 1].encode("utf-8", "surrogateescape"))
            is_hex = "uXXXX" in error.msg
            reason = (
                "Incorrect hex digit after \\u escape in string." if is_hex else "Invalid escape character in string."
            )
            raise self._error(reason) from error
        # Bytes that are no UTF-8 are surrogates here as well, but no half of what an escape begins.
        if "\\u" in raw and _LONE_SURROGATE.search(json.loads(f'"{_NO_UTF8.sub("?", raw)}"')):
            self._at = start + raw.lower().index("\\ud")
            raise self._error("The surrogate pair in string is invalid.")
        return value

    def _error(self, reason: str) -> ServingError:
        return bad_request(f"JSON Parse error: {reason} at offset: {self._at}")
