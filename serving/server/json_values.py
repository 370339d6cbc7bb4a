"""JSON values as in RapidJSON: objects with repeated names, type names, and values in error messages."""

import decimal
import math
import re
from collections.abc import Iterator
from typing import Any

from ctrpipe.serving.server.errors import bad_request

ECHO_BYTES = 256
# Members of a name that their object has already. Each is read by itself, and few bytes of gzip may hold very many.
MOST_REPEATED = 10_000
_INDENT = b"    "
_ESCAPED = re.compile(rb'["\\\x00-\x1f]')
_SMALLEST_NORMAL = 2.0**-1022
_SHORT_ESCAPES = {8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r", 34: b'\\"', 92: b"\\\\"}
_END = object()


class Members(dict[str, Any]):
    """An object with a repeated name.

    Args:
        pairs: All members in order. As a dict, the object has the first value of each name.
    """

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(reversed(pairs))
        self.pairs = pairs


class Objects:
    """Creates the objects of one body, and counts repeated member names."""

    def __init__(self) -> None:
        self._repeated = 0

    def new(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Returns the object with these members: a dict, or a `Members` if a name is repeated.

        Raises:
            ServingError: the body repeats more than MOST_REPEATED names.
        """
        value = dict(pairs)
        if len(value) == len(pairs):
            return value
        self._repeated += len(pairs) - len(value)
        if self._repeated > MOST_REPEATED:
            raise bad_request(f"The objects of the request repeat more than {MOST_REPEATED} names; send each name once")
        return Members(pairs)


def members(value: dict[str, Any]) -> list[tuple[str, Any]]:
    """Returns an object's members in order, including repeated names."""
    return value.pairs if isinstance(value, Members) else list(value.items())


def json_type(value: object) -> str:
    """Returns the name of a value's JSON type in error messages."""
    if value is None:
        return "Null"
    if isinstance(value, bool):
        return "True" if value else "False"
    if isinstance(value, int | float):
        return "Number"
    if isinstance(value, str):
        return "String"
    return "Array" if isinstance(value, list) else "Object"


def json_string(value: bytes | str) -> bytes:
    """Returns a string as JSON. Like TF Serving, does not check that it is UTF-8 (O6)."""
    raw = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
    if _ESCAPED.search(raw):
        for code in (92, 34, *range(32)):  # the backslash first: the other escapes begin with it
            raw = raw.replace(bytes([code]), _SHORT_ESCAPES.get(code) or b"\\u%04X" % code)
    return b'"' + raw + b'"'


def shown(value: object) -> str:
    """Returns a value as TF Serving's error messages show it (J9).

    The text ends with the part that reaches 256 bytes, or before a number that is not finite.
    """
    parts, size = [], 0
    for part in _pieces(value):  # lazily: the value may be the whole body
        parts.append(part)
        size += len(part)
        if size >= ECHO_BYTES:
            break
    return b"".join(parts).decode("utf-8", "surrogateescape")


def _pieces(value: Any) -> Iterator[bytes]:
    """Yields a value's text in pieces. Each member of an object has its own line; a list has one line."""
    open_members: list[Iterator[Any]] = []
    closing: list[bytes] = []
    prefix = b""
    while True:
        if isinstance(value, float) and not math.isfinite(value):
            yield prefix
            return
        if isinstance(value, dict | list):
            yield prefix + (b"{" if isinstance(value, dict) else b"[")
            open_members.append(iter(members(value) if isinstance(value, dict) else value))
            closing.append(b"}" if isinstance(value, dict) else b"]")
            comma = b""
        else:
            yield prefix + _scalar_text(value)
            comma = b","
        while open_members:
            item: Any = next(open_members[-1], _END)
            line = b"\n" + _INDENT * len(open_members)
            if item is not _END:
                break
            open_members.pop()
            yield (line[:-4] if comma and closing[-1] == b"}" else b"") + closing.pop()
            comma = b","
        else:
            return
        if closing[-1] == b"}":
            name, value = item
            yield comma + line + json_string(name)
            prefix = b": "
        else:
            value, prefix = item, comma and b", "


def _scalar_text(value: str | float | bool | None) -> bytes:
    if value is None:
        return b"null"
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, str):
        return json_string(value)
    return _double_text(value) if isinstance(value, float) else b"%d" % value


def _double_text(value: float) -> bytes:
    """Returns a number's shortest text. Numbers below 1e-6 or from 1e21 on have an exponent, without a plus sign."""
    _, digits, exponent = decimal.Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)  # the number is finite
    text = "".join(map(str, digits))
    point = len(text) + exponent  # position of the decimal point in the digits
    if abs(value) < _SMALLEST_NORMAL:  # subnormal numbers are zeros there (P15)
        text = "0.0"
    elif len(text) <= point <= 21:
        text = text.ljust(point, "0") + ".0"
    elif 0 < point <= 21:
        text = f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{text}"
    else:
        text = f"{text[0]}{text[1:] and '.'}{text[1:]}e{point - 1}"
    return (b"-" if math.copysign(1, value) < 0 else b"") + text.encode()
