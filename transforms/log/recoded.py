"""Reads a text of any encoding as UTF-8."""

import codecs
import io
from typing import IO, Any, cast

from ctrpipe.transforms.log.first_bytes import decoding_of

_BLOCK_BYTES = 1 << 20
_ERRORS = "ctrpipe_invalid"
_INVALID = "\udcff"  # becomes the byte 0xFF, which no UTF-8 has: the row is malformed, and the others are read


def _replace_invalid(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return _INVALID, error.end


codecs.register_error(_ERRORS, _replace_invalid)


def recoded(file: IO[bytes], encoding: str) -> IO[bytes]:
    """Returns the text as a UTF-8 file. Bytes that are invalid in `encoding` become 0xFF.

    Args:
        file: The file, at its beginning.
        encoding: `data.encoding`. A byte order mark selects the variant of UTF-16 or UTF-32.
    """
    return cast(IO[bytes], io.BufferedReader(_Recoded(file, encoding), _BLOCK_BYTES))


class _Recoded(io.RawIOBase):
    def __init__(self, file: IO[bytes], encoding: str):
        self._file = file
        self._encoding = encoding
        self._decoder: codecs.IncrementalDecoder | None = None
        self._text = memoryview(b"")
        self._ended = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        while not self._text and not self._ended:
            self._text = memoryview(self._next())
        size = min(len(target), len(self._text))
        target[:size] = self._text[:size]
        self._text = self._text[size:]
        return size

    def _next(self) -> bytes:
        """Decodes the next block. The decoder keeps incomplete characters for the block after it."""
        block = self._file.read(_BLOCK_BYTES)
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder(decoding_of(block, self._encoding))(_ERRORS)
        self._ended = not block
        return self._decoder.decode(block, final=self._ended).encode("utf-8", "surrogateescape")
