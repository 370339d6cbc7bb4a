"""Decompression slice by slice gives the same bytes as zlib on the whole."""

import gzip
import random
import zlib

import pytest

from ctrpipe.serving.server import inflate as module
from ctrpipe.serving.server.inflate import Damaged, Inflated, inflate

ANY = 32 + zlib.MAX_WBITS


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress, lambda data: zlib.compress(data, 0)])
@pytest.mark.parametrize("size", [0, 1, 1000, 16384, 65536, 262_144, 262_145, 2_000_000])
@pytest.mark.parametrize("make", [bytes, random.Random(3).randbytes, lambda size: (b"abcdef" * size)[:size]])
def test_a_body_is_the_same(pack, size, make):
    plain = make(size)
    packed = pack(plain)
    assert inflate(packed, size, ANY) == inflate(packed, 1 << 30, ANY) == Inflated(plain, True, False)
    assert inflate(packed + b"x", size, ANY) == Inflated(plain, True, True)
    assert inflate(packed + bytes(100_000), size, ANY) == Inflated(plain, True, True)
    if size > 1:
        assert inflate(packed, size - 1, ANY).plain == plain
        cut = inflate(packed, size // 2, ANY)
        assert (cut.plain, cut.is_whole) == (plain[: size // 2 + 1], False)
    short = inflate(packed[:-1], size, ANY)
    assert (plain.startswith(short.plain), short.is_whole) == (True, False)


def test_a_wrong_checksum_is_damage():
    packed = gzip.compress(b"a" * 1000)
    for wrong in (packed[:-5] + b"\0\0\0\0\0", b"nothing of zlib", b"\x1f\x8b" + bytes(20)):
        with pytest.raises(Damaged):
            inflate(wrong, 1000, ANY)


def test_no_slice_is_long(monkeypatch):
    """zlib keeps the interpreter while it joins what one call has made."""
    made = []

    class Recorded:
        def __init__(self, *arguments):
            self._decompressor = zlib.decompressobj(*arguments)

        def __getattr__(self, name):
            return getattr(self._decompressor, name)

        def decompress(self, data, most=0):
            made.append((len(data), len(plain := self._decompressor.decompress(data, most))))
            return plain

    class Zlib:
        error, decompressobj = zlib.error, Recorded

    monkeypatch.setattr(module, "zlib", Zlib)
    plain = bytes(3_000_000) + random.Random(1).randbytes(300_000)
    assert inflate(gzip.compress(plain), len(plain), ANY).plain == plain
    taken, given = zip(*made, strict=True)
    assert max(taken) <= 16 << 10 and max(given) <= 256 << 10
