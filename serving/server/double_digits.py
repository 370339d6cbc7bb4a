"""The digits with which RapidJSON prints a double, by Grisu2. They read back as the same double.

The text is nearly always the shortest such text. With 16 or 17 digits it is often not the nearest: RapidJSON's search
for the nearest one ends with its table of powers.

References:
    Loitsch, "Printing floating-point numbers quickly and accurately with integers", 2010, section 5.
    RapidJSON 1.1.0, internal/dtoa.h, for the choice of the power of ten.
"""

import functools
import math
import struct

_SIGNIFICAND_BITS = 52
_HIDDEN_BIT = 1 << _SIGNIFICAND_BITS
_BIAS = 1075
_BITS = 64  # width of a significand in the calculation
_FIRST_POWER, _POWER_STEP = -348, 8  # the table of powers of ten: 10^-348, 10^-340 and so on
_LOG10_2 = 0.30102999566398114
_LOWEST_EXPONENT = -61  # lower limit for the binary exponent of a product with the chosen power
_NOT_CLOSER = -9  # RapidJSON's table of powers ends here: beyond it, the last digit is not corrected


def double_digits(value: float) -> tuple[str, int]:
    """Returns the digits of a positive, finite double, and the power of ten of the last digit.

    1.25 is ("125", -2).
    """
    (bits,) = struct.unpack("<Q", struct.pack("<d", value))
    biased, significand = bits >> _SIGNIFICAND_BITS, bits & (_HIDDEN_BIT - 1)
    if biased:
        significand += _HIDDEN_BIT
    exponent = max(biased, 1) - _BIAS
    # The midpoints to the neighbouring doubles, in units of a quarter of the last bit. All three values are shifted
    # equally, to 64 bits.
    upper = 4 * significand + 2
    lower = 4 * significand - (1 if significand == _HIDDEN_BIT else 2)
    shift = _BITS - upper.bit_length()
    exponent -= 2 + shift
    power = _power_of_ten(exponent)
    ten_significand, ten_exponent = _rounded_power(power)
    exact, high, low = (_product(middle << shift, ten_significand) for middle in (4 * significand, upper, lower))
    # The products are off by at most one. Only numbers inside the narrowed interval safely read back as the same
    # double.
    high, low = high - 1, low + 1
    digits, last = _digits_between(exact, high, high - low, -(exponent + ten_exponent + _BITS))
    return "".join(map(str, digits)), last - power


def _power_of_ten(exponent: int) -> int:
    """Returns the power of ten by which a number with this binary exponent is multiplied."""
    least = math.ceil((_LOWEST_EXPONENT - exponent) * _LOG10_2 + 347)
    return _FIRST_POWER + _POWER_STEP * ((least >> 3) + 1)


@functools.cache
def _rounded_power(power: int) -> tuple[int, int]:
    """Returns a power of ten as a significand of 64 bits and a binary exponent."""
    numerator, denominator = (10**power, 1) if power >= 0 else (1, 10**-power)
    exponent = numerator.bit_length() - denominator.bit_length() - _BITS
    while True:
        over, under = (numerator, denominator << exponent) if exponent >= 0 else (numerator << -exponent, denominator)
        significand = (2 * over + under) // (2 * under)
        if significand < 1 << _BITS:
            return significand, exponent
        exponent += 1


def _product(first: int, second: int) -> int:
    """Returns the upper 64 bits of a 128-bit product, rounded."""
    return (first * second + (1 << (_BITS - 1))) >> _BITS


def _digits_between(exact: int, high: int, width: int, point: int) -> tuple[list[int], int]:
    """Returns the fewest digits of a number in (high - width, high), and the last digit's power of ten.

    Args:
        exact: The exact number, in units of 2^-point.
        high: The upper limit.
        width: The width of the interval.
        point: Number of bits behind the binary point.
    """
    whole, fraction = high >> point, high & ((1 << point) - 1)
    digits: list[int] = []
    for place in range(len(str(whole)) - 1, -1, -1):
        digit, whole = divmod(whole, 10**place)
        if digit or digits:
            digits.append(digit)
        rest = (whole << point) + fraction
        if rest <= width:
            return _closer(digits, width, rest, 10**place << point, high - exact), place
    place, distance = 0, high - exact
    while True:
        fraction, width, distance, place = 10 * fraction, 10 * width, 10 * distance, place - 1
        digit, fraction = fraction >> point, fraction & ((1 << point) - 1)
        if digit or digits:
            digits.append(digit)
        if fraction < width:
            return _closer(digits, width, fraction, 1 << point, distance if place > _NOT_CLOSER else 0), place


def _closer(digits: list[int], width: int, rest: int, unit: int, distance: int) -> list[int]:
    """Lowers the last digit while the number gets closer to the exact one and stays in the interval.

    Args:
        digits: The digits.
        width: The width of the interval.
        rest: Distance of the digits below the interval's upper limit.
        unit: One unit of the last digit.
        distance: Distance of the exact number below the interval's upper limit.
    """
    while (
        rest < distance
        and width - rest >= unit
        and (rest + unit < distance or distance - rest > rest + unit - distance)
    ):
        digits[-1] -= 1
        rest += unit
    return digits
