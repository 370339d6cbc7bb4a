"""Checksums of files, computed piece by piece while reading, to detect files that change between two reads."""

import dataclasses
import functools
import zlib
from collections.abc import Iterable, Sequence
from typing import IO

from ctrpipe.common.errors import InputError

_POLYNOMIAL = 0xEDB88320  # of CRC-32, with the lowest power in the highest bit, as in zlib's crc32.c


@dataclasses.dataclass
class ByteSum:
    """A checksum: the number of bytes and their CRC-32, as in RFC 1952.

    The sums of adjacent pieces combine into the sum of the whole: several processes can read one file. The checksum
    detects accidental changes, not forgery.
    """

    length: int = 0
    crc: int = 0

    def add(self, data: bytes) -> None:
        """Adds the next bytes."""
        self.length += len(data)
        self.crc = zlib.crc32(data, self.crc)

    def followed_by(self, other: "ByteSum") -> "ByteSum":
        """Returns the sum of this piece followed by another one."""
        shifted = _multiply(_power_of_x(8 * other.length), self.crc)
        return ByteSum(self.length + other.length, shifted ^ other.crc)


def joined(pieces: Iterable[ByteSum]) -> ByteSum:
    """Returns the sum of adjacent pieces, given in order."""
    return functools.reduce(ByteSum.followed_by, pieces, ByteSum())


class SummedFile:
    """A binary file that adds all bytes to a checksum as they are read, in order.

    Args:
        file: The file, at the position where reading begins.
        into: The sum to add to.
    """

    closed = False  # Arrow reads this attribute

    def __init__(self, file: IO[bytes], into: ByteSum):
        self._file = file
        self._into = into

    def close(self) -> None:
        """Does nothing: the file's owner closes it."""

    def read(self, size: int = -1) -> bytes:
        """Reads from the file and adds the bytes to the sum."""
        data = self._file.read(size)
        self._into.add(data)
        return data


def check_unchanged(files: Sequence[str], hashed: Sequence[ByteSum], read: Sequence[ByteSum]) -> None:
    """Checks that the bytes read from each file have the checksum computed before.

    Raises:
        InputError: a file's checksums differ.
    """
    for path, before, after in zip(files, hashed, read, strict=True):
        if before != after:
            raise changed(path)


def changed(path: str) -> InputError:
    """Returns the error for a file that changed between two reads."""
    return InputError(f"{path}: the file changed while it was read; let nothing write to it meanwhile, and run again")


def _multiply(one: int, other: int) -> int:
    """Returns the product of two polynomials over GF(2) modulo CRC-32's; the highest bit is the coefficient of x^0."""
    product = 0
    while one:
        if one & 1 << 31:
            product ^= other
        one = one << 1 & 0xFFFFFFFF
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product


def _power_of_x(exponent: int) -> int:
    """Returns x^exponent modulo CRC-32's polynomial."""
    power, square = 1 << 31, 1 << 30  # 1 and x
    while exponent:
        if exponent & 1:
            power = _multiply(power, square)
        square = _multiply(square, square)
        exponent >>= 1
    return power
