"""Hash functions with the same results on every machine and with every numpy version."""

import zlib

import numpy as np

_HEX_DIGITS = np.frombuffer(b"0123456789abcdef", np.uint8)


def splitmix64(x: np.ndarray) -> np.ndarray:
    """Applies SplitMix64's output function (Steele et al. 2014), a bijection, to uint64 `[N]`."""
    with np.errstate(over="ignore"):
        z = x.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def hash_values(key: str, values: np.ndarray) -> np.ndarray:
    """Returns uint64 hashes `[N]` of integers `[N]` in [0, 2^32). Hashes with different keys are independent."""
    return splitmix64(values.astype(np.uint64) | np.uint64(zlib.crc32(key.encode()) << 32))


def _hex_of_16_bits() -> np.ndarray:
    numbers = np.arange(1 << 16)
    digits = np.stack([_HEX_DIGITS[(numbers >> shift) & 15] for shift in (12, 8, 4, 0)], axis=1)
    return np.ascontiguousarray(digits).view("S4").view(np.uint32).ravel()


_HEX4 = _hex_of_16_bits()


def hex_tokens(hashes: np.ndarray) -> np.ndarray:
    """Returns the top 32 bits of uint64 `hashes` `[N]` as 8 lower-case hex digits: uint8 `[N, 8]`, ASCII."""
    # Four digits per table look-up. Formatting single numbers would take most of the time of a generator.
    tokens = np.empty((len(hashes), 2), np.uint32)
    tokens[:, 0] = _HEX4[hashes >> np.uint64(48)]
    tokens[:, 1] = _HEX4[(hashes >> np.uint64(32)) & np.uint64(0xFFFF)]
    return tokens.view(np.uint8)
