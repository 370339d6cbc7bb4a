"""Request bodies, parsed as RapidJSON does in TF Serving (contract J1-J6): NaN and Infinity are numbers, what follows
the first value is ignored, nesting has no limit."""

import json
import re
from typing import Any

import orjson

from serving.server.errors import bad_request

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_WORDS = {
    "true": True,
    "false": False,
    "null": None,
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "Inf": float("inf"),
    "-Infinity": float("-inf"),
    "-Inf": float("-inf"),
}
_WORD = re.compile("|".join(sorted(_WORDS, key=len, reverse=True)))


def parse_body(body: bytes) -> dict[str, Any]:
    """The request's top-level object. Raises ServingError with RapidJSON's text and offset."""
    if not body.strip(b" \t\r\n"):
        raise bad_request("JSON Parse error: The document is empty")
    value = _parse(body)
    if not isinstance(value, dict):
        raise bad_request(f"JSON Value: {json.dumps(value, indent=4)[:256]} Is not object")
    return value


def _parse(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        pass
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        text = body.decode("utf-8", "surrogateescape")
    start = _SPACE.match(text).end()  # type: ignore[union-attr]
    try:
        # The standard library's C scanner: NaN, Infinity and trailing bytes are fine with it.
        return json.JSONDecoder().raw_decode(text, start)[0]
    except (json.JSONDecodeError, RecursionError):
        return _iterative(text, start)


def _iterative(text: str, at: int) -> Any:
    """Without recursion, for what is left: Inf, very deep nesting, and errors with RapidJSON's texts."""
    stack: list[tuple[Any, str | None]] = []
    while True:
        at = _skip(text, at)
        if text[at : at + 1] in ("{", "["):
            container: Any = {} if text[at] == "{" else []
            at = _skip(text, at + 1)
            if text[at : at + 1] == ("}" if isinstance(container, dict) else "]"):
                value, at = container, at + 1
            else:
                key, at = _key(text, at) if isinstance(container, dict) else (None, at)
                stack.append((container, key))
                continue
        else:
            value, at = _scalar(text, at)
        while stack:
            container, key = stack.pop()
            if isinstance(container, dict):
                container[key] = value
            else:
                container.append(value)
            at = _skip(text, at)
            mark = text[at : at + 1]
            if mark == ",":
                key, at = _key(text, _skip(text, at + 1)) if isinstance(container, dict) else (None, at + 1)
                stack.append((container, key))
                break
            if mark != ("}" if isinstance(container, dict) else "]"):
                what = "object member" if isinstance(container, dict) else "array element"
                raise _error(f"Missing a comma or {'}' if isinstance(container, dict) else ']'} after an {what}.", at)
            value, at = container, at + 1
        else:
            return value


def _skip(text: str, at: int) -> int:
    return _SPACE.match(text, at).end()  # type: ignore[union-attr]


def _key(text: str, at: int) -> tuple[str, int]:
    if text[at : at + 1] != '"':
        raise _error("Missing a name for object member.", at)
    key, at = _scalar(text, at)
    at = _skip(text, at)
    if text[at : at + 1] != ":":
        raise _error("Missing a colon after a name of object member.", at)
    return key, at + 1


def _scalar(text: str, at: int) -> tuple[Any, int]:
    if text[at : at + 1] == '"':
        try:
            return json.decoder.scanstring(text, at + 1, False)  # type: ignore[attr-defined]
        except json.JSONDecodeError as error:
            missing = "Unterminated" in error.msg
            reason = "Missing a closing quotation mark in string." if missing else "Invalid escape character in string."
            raise _error(reason, error.pos) from error
    word = _WORD.match(text, at)
    if word:
        return _WORDS[word.group()], word.end()
    number = _NUMBER.match(text, at)
    if number:
        is_float = number.group(1) or number.group(2)
        return (float if is_float else int)(number.group()), number.end()
    raise _error("Invalid value.", at)


def _error(reason: str, at: int):
    return bad_request(f"JSON Parse error: {reason} at offset: {at}")
