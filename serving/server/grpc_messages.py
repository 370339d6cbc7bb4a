"""Unparsed bodies of gRPC calls: decompresses them within the budget, and bounds their cost.

gRPC decompresses a body before the server sees it, and a megabyte may become a gigabyte. The server therefore takes
bodies as they arrive (`grpc.per_message_decompression`). The first byte tells the compression: no message can begin
with gzip's first byte, and deflate's first byte would be a field that no request has.
"""

import zlib
from typing import Any

import numpy as np
from tensorflow_serving.apis import input_pb2

from ctrpipe.serving.server.budget import Held
from ctrpipe.serving.server.errors import ServingError, bad_request
from ctrpipe.serving.server.inflate import Damaged, inflate

# The tags of strings in a tensor, of examples, features and their values, and of sizes in a shape: each may be followed
# by a length of 0. A message has at most as many elements as it has such bytes.
_TAGS = (0x42, 0x0A, 0x12)
MOST_ELEMENTS = 1 << 20
# The tags of what no signature takes, and of names: parsed, then refused. Numbers have such bytes too: 64 MiB of random
# ones a million of them.
_OTHER_TAGS = (0x1A, 0x32, 0x72, 0x7A)
MOST_OTHERS = 1 << 21
# What a byte may be: a tag of one kind or the other, or the first byte of a longer one.
_TAG, _PADDED = 1, 3
_MARKS = bytes(
    _TAG + (byte in _OTHER_TAGS)
    if byte in (*_TAGS, *_OTHER_TAGS)
    else _PADDED + (byte & 0x7F in _OTHER_TAGS)
    if byte & 0x7F in (*_TAGS, *_OTHER_TAGS)
    else 0
    for byte in range(256)
)
_OTHER_BYTES = 200  # of a tensor within a variant
_ELEMENT_BYTES = 184  # as an object of the parser, of Python and of TensorFlow together
MOST_EXAMPLES = 1 << 17
_EXAMPLE_BYTES = 700  # with its classes and scores, each an object in the answer
_TIMES_SIZE = 24  # a varint of one byte takes so much in the parser, in TensorFlow's copy and in the arrays
_PIECE_BYTES = 1 << 20
_SMALL_BYTES = 4 << 10  # counting takes longer than it is worth
_HIGHEST_RATIO = 1032  # of deflate
_GZIP = b"\x1f\x8b"
_DEFLATE = 0x78


def plain_size(body: bytes, limit: int) -> int:
    """Returns the size of a message after decompression: gzip states it at its end, for deflate it is an upper bound.

    Raises:
        ServingError: the size exceeds the limit.
    """
    if body.startswith(_GZIP):
        size = int.from_bytes(body[-4:], "little")
        if size > limit:
            raise _too_long(limit)
        return size
    return min(_HIGHEST_RATIO * len(body), limit) if _is_deflate(body) else len(body)


def plain_message(body: bytes, limit: int, held: Held) -> bytes:
    """Returns the message, decompressed if it is gzip or deflate. Reserves its size in `held`.

    Args:
        body: The received message.
        limit: Bytes of the decompressed message.
        held: The call's reservation in the budget.

    Raises:
        ServingError: the message is damaged, or above the limit.
        OverBudget: the decompressed message does not fit next to other requests.
    """
    if not body.startswith(_GZIP) and not _is_deflate(body):
        return body
    size = plain_size(body, limit)
    held.grow(size)
    try:
        plain, is_whole, _ = inflate(body, size, 32 + zlib.MAX_WBITS)
    except Damaged as error:
        raise ServingError("INTERNAL", f"The message is compressed and damaged: {error}") from error
    if len(plain) > limit:
        raise _too_long(limit)
    if not is_whole:
        raise ServingError("INTERNAL", "The message is compressed and its end is missing")
    held.shrink(size - len(plain))
    return plain


def _too_long(limit: int) -> ServingError:
    return ServingError(
        "RESOURCE_EXHAUSTED", f"The decompressed message is above the limit of {limit} bytes (--max_request_bytes)"
    )


def _is_deflate(body: bytes) -> bool:
    return len(body) > 1 and body[0] == _DEFLATE and (body[0] << 8 | body[1]) % 31 == 0


def check_message(body: bytes) -> int:
    """Returns an upper bound on the memory of a message after parsing, in bytes.

    Raises:
        ServingError: it may have more than MOST_ELEMENTS elements, or MOST_OTHERS names.
    """
    if len(body) <= _SMALL_BYTES:
        return len(body) * (_TIMES_SIZE + _ELEMENT_BYTES // 2)
    elements, others = _count_tags(body)
    if elements > MOST_ELEMENTS:
        raise bad_request(
            f"The message of {len(body)} bytes may hold {elements} strings and examples, above {MOST_ELEMENTS}; send "
            "fewer rows at a time"
        )
    if others > MOST_OTHERS:
        raise bad_request(
            f"The message of {len(body)} bytes may hold {others} filters and values of no signature, above "
            f"{MOST_OTHERS}; send fewer"
        )
    return len(body) * _TIMES_SIZE + elements * _ELEMENT_BYTES + others * _OTHER_BYTES


def _count_tags(body: bytes) -> list[int]:
    """Returns upper bounds on the numbers of _TAGS and of _OTHER_TAGS in a message.

    A one-byte tag may also be encoded in several bytes, as 0x8A 0x00 for 0x0A. No library writes this, and all read it.
    """
    counts = [0, 0]
    for start in range(0, len(body), _PIECE_BYTES):
        piece = body[start : start + _PIECE_BYTES + 1]  # with the byte after the last pair's first one
        marks = np.frombuffer(piece.translate(_MARKS), np.uint8)
        is_zero = np.frombuffer(piece, np.uint8)[1:] & 0x7F == 0
        for kind in range(len(counts)):
            tags = marks[:_PIECE_BYTES] == _TAG + kind
            padded = marks[:-1] == _PADDED + kind
            counts[kind] += int(np.count_nonzero(tags)) + int(np.count_nonzero(padded & is_zero))
    return counts


def check_examples(request: Any) -> int:
    """Returns an upper bound on the memory of a parsed request's examples until the answer, in bytes.

    Raises:
        ServingError: it has more than MOST_EXAMPLES examples.
    """
    sent = getattr(request, "input", None)
    kind = sent.WhichOneof("kind") if isinstance(sent, input_pb2.Input) else None
    count = len(getattr(sent, kind).examples) if kind else 0
    if count > MOST_EXAMPLES:
        raise bad_request(f"The request has {count} examples, above {MOST_EXAMPLES}; send fewer at a time")
    return count * _EXAMPLE_BYTES
