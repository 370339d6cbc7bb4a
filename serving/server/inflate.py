"""Decompresses bodies in slices, which lets other threads run between the slices.

zlib joins its output in one step that holds the GIL: for 60 MB, no other client is answered for 0.1 s.
"""

import io
import zlib
from typing import NamedTuple

_PACKED_BYTES, _PLAIN_BYTES = 16 << 10, 256 << 10


class Damaged(ValueError):
    """Raised if zlib cannot decompress a body."""


class Inflated(NamedTuple):
    """A decompressed body.

    Attributes:
        plain: The body.
        is_whole: Whether the compressed stream is complete.
        has_more: Whether other bytes follow the stream.
    """

    plain: bytes
    is_whole: bool
    has_more: bool


def inflate(packed: bytes, most: int, window: int) -> Inflated:
    """Decompresses a body.

    Args:
        packed: gzip or deflate.
        most: Maximum size of the decompressed body; of a longer body, `most` + 1 bytes are returned.
        window: zlib's `wbits`, which selects the format.

    Raises:
        Damaged: the format or the checksum is wrong.
    """
    decompressor, plain, size, start = zlib.decompressobj(window), io.BytesIO(), 0, 0
    try:
        for start in range(0, len(packed), _PACKED_BYTES):
            rest, goes_on = packed[start : start + _PACKED_BYTES], True
            while goes_on and size <= most:
                part = decompressor.decompress(rest, min(_PLAIN_BYTES, most + 1 - size))
                size += plain.write(part)
                rest = decompressor.unconsumed_tail
                goes_on = not decompressor.eof and bool(rest or part)
            if decompressor.eof or size > most:
                break
    except zlib.error as error:
        raise Damaged(str(error)) from error
    has_more = bool(decompressor.unused_data) or start + _PACKED_BYTES < len(packed)
    return Inflated(plain.getvalue(), decompressor.eof, has_more)
