"""Sums of a file's bytes that its readers make piece by piece: whether what was read is what was hashed."""

import dataclasses
import functools
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import IO

from common.errors import InputError

_POLYNOMIAL = 0xEDB88320  # CRC-32's, lowest power in the highest bit, as in zlib's crc32.c


@dataclasses.dataclass
class ByteSum:
    """How many bytes there are, and their CRC-32 (as zlib computes it, RFC 1952).

    The sums of two neighbouring pieces give that of both together, so that several processes can read a file. It finds
    a file that changes, not one that is forged.
    """

    length: int = 0
    crc: int = 0

    def add(self, data: bytes) -> None:
        """Adds the bytes that follow."""
        self.length += len(data)
        self.crc = zlib.crc32(data, self.crc)

    def followed_by(self, other: "ByteSum") -> "ByteSum":
        """Returns the sum of this piece and of the one after it."""
        shifted = _multiply(_power_of_x(8 * other.length), self.crc)
        return ByteSum(self.length + other.length, shifted ^ other.crc)


def joined(pieces: Iterable[ByteSum]) -> ByteSum:
    """Returns the sum of neighbouring pieces, in their order."""
    return functools.reduce(ByteSum.followed_by, pieces, ByteSum())


def sums_to_json(sums: Iterable[ByteSum]) -> str:
    """Returns sums as a TFX component's parameter."""
    return json.dumps([dataclasses.astuple(each) for each in sums])


def sums_from_json(text: str) -> list[ByteSum]:
    """Returns what `sums_to_json` wrote."""
    return [ByteSum(length, crc) for length, crc in json.loads(text)]


class SummedFile:
    """A binary file whose bytes are summed as they are read, from first to last.

    Args:
        file: The file, where its reading begins.
        into: The sum.
    """

    def __init__(self, file: IO[bytes], into: ByteSum):
        self._file = file
        self._into = into

    def read(self, size: int = -1) -> bytes:
        """Reads as the file does."""
        data = self._file.read(size)
        self._into.add(data)
        return data


def check_unchanged(files: Sequence[str], hashed: Sequence[ByteSum], read: Sequence[ByteSum]) -> None:
    """Checks that what was read of each file is what was hashed.

    Raises:
        InputError: it is not.
    """
    for path, before, after in zip(files, hashed, read, strict=True):
        if before != after:
            raise changed(path)


def changed(path: str) -> InputError:
    """Returns the error of a file that was another one from one look at it to the next."""
    return InputError(f"{path}: the file changed while it was read; let nothing write to it meanwhile, and run again")


def _multiply(one: int, other: int) -> int:
    """Returns the product of two polynomials over GF(2) modulo CRC-32's; the highest bit is the power 0."""
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
