"""Parses large protobuf messages piece by piece, so that other threads run between the pieces.

protobuf's parser holds the GIL for a whole message, 20 ms for a million strings, and no other client is answered
meanwhile. This module only finds the fields, and passes groups of some kilobytes to protobuf's parser. A larger field
is split in the same way if it is a message. The large content of a tensor stays outside the message, because protobuf
would copy it three times.
"""

import itertools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from ctrpipe.serving.server.errors import bad_request

Contents = dict[str, np.ndarray]
PIECE_BYTES = 16 << 10
_WHOLE_BYTES = 64 << 10  # shorter messages take 1 ms at most: they are parsed as they are, which is faster
_COPIED_BYTES = 256 << 10
_ALIGNMENT = 64  # of what TensorFlow takes over
_CONTENT, _TENSOR_LEVEL = "tensorflow.TensorProto.tensor_content", 2  # of a tensor that is an input
_LONGEST_SHORT = 160  # bytes of a field that the pattern below finds, at most
_LONGEST_TEXT = 127  # bytes of a text that it finds
# Short fields that it does not find: their length is written with more bytes than it needs, which no library does. Each
# takes a microsecond of the interpreter, so that a message of 64 MiB could take a minute.
_MOST_PADDED = 1 << 16
_MOST_LEVELS = 100  # as protobuf's own parser
_NUMBERS = 1 << 29  # of fields
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # wire types
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}
_KEY, _VALUE = 1 << 3 | _LENGTH, 2 << 3 | _LENGTH  # tags of a map's entry
LONGEST_NAME = 256 << 10  # bytes; each look at a name of megabytes keeps the interpreter, to copy or to compare it
_FIXED_TYPES = {
    FieldDescriptor.TYPE_FLOAT,
    FieldDescriptor.TYPE_DOUBLE,
    FieldDescriptor.TYPE_FIXED32,
    FieldDescriptor.TYPE_FIXED64,
    FieldDescriptor.TYPE_SFIXED32,
    FieldDescriptor.TYPE_SFIXED64,
}


def _tags(wire_type: int) -> bytes:
    """Returns a pattern of the tags of a wire type: one byte for fields 1 to 15, up to five bytes for others."""
    one = b"".join(re.escape(bytes([number << 3 | wire_type])) for number in range(1, 16))
    more = b"".join(re.escape(bytes([0x80 | number << 3 | wire_type])) for number in range(16))
    return rb"(?>[%b]|[%b][\x80-\xff]{0,3}[\x00-\x7f])" % (one, more)


_SHORT_TEXTS = b"|".join(re.escape(bytes([size])) + rb"[\s\S]{%d}" % size for size in range(1, _LONGEST_TEXT + 1))
# Whole fields, as many as there are: of no bytes, of up to 127 bytes, and numbers.
_SHORT_FIELDS = re.compile(
    rb"(?>(?>%b\x00)++|%b(?>%b)|%b[\x80-\xff]{0,9}[\x00-\x7f]|%b[\s\S]{4}|%b[\s\S]{8})*+"
    % (_tags(_LENGTH), _tags(_LENGTH), _SHORT_TEXTS, _tags(_VARINT), _tags(_FIXED32), _tags(_FIXED64))
)
_NUMBER = re.compile(rb"[\x80-\xff]{0,9}[\x00-\x7f]")


class _Place(NamedTuple):
    """The position of a message within its enclosing messages.

    Attributes:
        level: 1 for the outermost one.
        key: The key in the outermost message's map, if the message is in an entry.
        contents: See Parsed.
        padded: Counts the short fields with a padded length, over all messages.
    """

    level: int
    key: str
    contents: Contents
    padded: Iterator[int]

    def inside(self) -> "_Place":
        return self._replace(level=self.level + 1)


class _Large(NamedTuple):
    """A field whose content is longer than a piece: body[start:end]."""

    number: int
    start: int
    end: int


class Parsed(NamedTuple):
    """A message, and its large contents, which are kept outside it.

    Attributes:
        message: The message.
        contents: Large `tensor_content` by input of a Predict request, left out of the message.
    """

    message: Any
    contents: Contents


def parse(message_class: Any, body: bytes) -> Parsed:
    """Parses a message.

    Args:
        message_class: The class of the message.
        body: Its serialized form.

    Raises:
        DecodeError: the body is not a valid message.
        ServingError: a name is longer than LONGEST_NAME, or many lengths are padded.
    """
    if len(body) <= _WHOLE_BYTES:
        return Parsed(message_class.FromString(body), {})
    parsed = Parsed(message_class(), {})
    _merge(parsed.message, body, 0, len(body), _Place(1, "", parsed.contents, itertools.count(1)))
    return parsed


def with_contents(message: Any, contents: Contents) -> Any:
    """Puts the contents back into the Predict request, and returns it."""
    if not contents:
        return message
    whole = type(message)()
    whole.CopyFrom(message)
    for name, content in contents.items():
        whole.inputs[name].tensor_content = content.tobytes()
    return whole


def _merge(message: Message, body: bytes, start: int, end: int, place: _Place) -> None:
    """Adds the fields of body[start:end] to the message."""
    if place.level > _MOST_LEVELS:
        raise DecodeError("messages within messages are too deep")
    for first, last, large in _pieces(body, start, end, place.padded):
        message.MergeFromString(body[first:last])
        if large:
            _merge_large(message, body, large, place)


def _pieces(body: bytes, start: int, end: int, padded: Iterator[int]) -> Iterator[tuple[int, int, _Large | None]]:
    """Yields the bounds of each group of fields, and the large field after it, if any."""
    first = at = start
    while at < end:
        match = _SHORT_FIELDS.match(body, at, min(first + PIECE_BYTES, end))
        assert match  # the pattern matches nothing too
        at = match.end()
        is_full = at - first > PIECE_BYTES - _LONGEST_SHORT
        if at < end and not is_full:  # the next field is none of the short ones
            tag, content = _number(body, at, end)
            if tag & 7 == _LENGTH:
                size, content = _number(body, content, end)
                after = content + size
            else:
                after = _end_of_number(body, tag & 7, content, end)
            if after > end:
                raise DecodeError("a field is longer than its message")
            if after - content <= _LONGEST_TEXT and next(padded) > _MOST_PADDED:
                raise bad_request(f"More than {_MOST_PADDED} lengths are written with more bytes than they need")
            if tag & 7 == _LENGTH and size > PIECE_BYTES:
                yield first, at, _Large(tag >> 3, content, after)
                first = after
            at = after
            is_full = at - first > PIECE_BYTES - _LONGEST_SHORT
        if is_full:
            yield first, at, None
            first = at
    if first < end:
        yield first, end, None


def _number(body: bytes, at: int, end: int) -> tuple[int, int]:
    """Returns the varint at a position, and its end."""
    match = _NUMBER.match(body, at, end)
    if not match:
        raise DecodeError("a number does not end")
    value = 0
    for place, byte in enumerate(match.group()):
        value |= (byte & 0x7F) << 7 * place
    return value, match.end()


def _end_of_number(body: bytes, wire_type: int, at: int, end: int) -> int:
    """Returns the end of a numeric field whose content begins at a position."""
    if wire_type == _VARINT:
        return _number(body, at, end)[1]
    if wire_type not in _FIXED_SIZES:
        raise DecodeError("it has a group, which no request has")
    return at + _FIXED_SIZES[wire_type]


def _merge_large(message: Message, body: bytes, large: _Large, place: _Place) -> None:
    """Adds a large field. A field that the message does not define is skipped."""
    field = message.DESCRIPTOR.fields_by_number.get(large.number)
    if not 0 < large.number < _NUMBERS:
        raise DecodeError(f"a field has the number {large.number}")
    if field is None:
        return
    if field.full_name == _CONTENT and place.level == _TENSOR_LEVEL:
        message.ClearField(field.name)
        place.contents[place.key] = _copy(body, large.start, large.end)
    elif field.message_type is None:
        for part in _parts(field, body, large.start, large.end):
            message.MergeFromString(varint(large.number << 3 | _LENGTH) + varint(len(part)) + part)
    elif field.message_type.GetOptions().map_entry:
        _merge_entry(getattr(message, field.name), body, large, place)
    elif field.is_repeated:
        _merge(getattr(message, field.name).add(), body, large.start, large.end, place.inside())
    else:
        part = getattr(message, field.name)
        part.SetInParent()
        _merge(part, body, large.start, large.end, place.inside())


def _parts(field: FieldDescriptor, body: bytes, start: int, end: int) -> Iterator[bytes]:
    """Yields the content of a field that is not a message: text as a whole, numbers in parts."""
    if field.type == FieldDescriptor.TYPE_STRING:
        _check_name(end - start)
    if field.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        yield body[start:end]
        return
    while start < end:
        stop = min(start + PIECE_BYTES, end)  # a multiple of 8
        if field.type not in _FIXED_TYPES:
            while stop < end and body[stop - 1] & 0x80 and stop - start > PIECE_BYTES - 16:
                stop -= 1  # the number goes on
        yield body[start:stop]
        start = stop


def _merge_entry(entries: Any, body: bytes, large: _Large, place: _Place) -> None:
    """Adds an entry to a map from texts to messages. It replaces an earlier entry with the same key.

    An entry is a message with a key and a value. Every library writes the key first.
    """
    key, at = b"", large.start
    if body[at] == _KEY:
        size, at = _number(body, at + 1, large.end)
        _check_name(size)
        key, at = body[at : at + size], at + size
    tag, at = _number(body, at, large.end)
    size, at = _number(body, at, large.end)
    if tag != _VALUE or at + size != large.end:
        raise DecodeError("an entry of a map is not its key and then its value")
    try:
        name = key.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a key of a map is no UTF-8") from error
    if name in entries:
        del entries[name]
    if place.level == 1:
        place.contents.pop(name, None)
        place = place._replace(key=name)
    _merge(entries[name], body, at, large.end, place.inside())


def _check_name(size: int) -> None:
    if size > LONGEST_NAME:
        raise bad_request(f"A name of {size} bytes is above {LONGEST_NAME}")


def _copy(body: bytes, start: int, end: int) -> np.ndarray:
    """Copies body[start:end] in pieces to an array that TensorFlow takes over without a copy."""
    memory = np.empty(end - start + _ALIGNMENT, np.uint8)
    first = -memory.ctypes.data % _ALIGNMENT
    copy, source = memory[first : first + end - start], np.frombuffer(body, np.uint8, end - start, start)
    for at in range(0, len(copy), _COPIED_BYTES):
        copy[at : at + _COPIED_BYTES] = source[at : at + _COPIED_BYTES]
    return copy


def varint(number: int) -> bytes:
    """Encodes a non-negative number as a protobuf varint."""
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    return bytes(parts)
