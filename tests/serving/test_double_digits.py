"""The digits of doubles in errors, beside what RapidJSON 1.1.0 printed of them in TF Serving's json_tensor.cc."""

import struct

import numpy as np
import pytest

from ctrpipe.serving.server.double_digits import double_digits

GREATEST, LEAST_NORMAL, LEAST = 1.7976931348623157e308, 2.2250738585072014e-308, 5e-324


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.30000000000000004, "30000000000000007e-17"),  # not the nearest of 17 digits
        (373.26088855904675, "37326088855904677e-14"),
        (1.4091782481899697e-37, "14091782481899698e-53"),
        (5.1389424080000006e299, "51389424080000009e283"),
        (0.1, "1e-1"),
        (0.5, "5e-1"),
        (1.0, "1e0"),
        (100.0, "1e2"),
        (123456.789, "123456789e-3"),
        (9007199254740993.0, "9007199254740992e0"),
        (1e21, "1e21"),
        (GREATEST, "17976931348623157e292"),
        (LEAST_NORMAL, "22250738585072014e-324"),
        (LEAST, "5e-324"),
    ],
)
def test_a_double_has_rapidjsons_digits(value, text):
    digits, exponent = double_digits(value)
    assert f"{digits}e{exponent}" == text


def test_the_digits_read_back_as_the_same_double_and_are_hardly_ever_more_than_the_fewest():
    bits = np.random.default_rng(1).integers(1, 0x7FF0000000000000, 20_000)
    powers = [2.0**power for power in range(-1074, 1024)]  # where the neighbour below is half as far
    longer = 0
    values = [struct.unpack("<d", struct.pack("<q", int(value)))[0] for value in bits] + powers
    for value in values:
        digits, exponent = double_digits(value)
        assert float(f"{digits}e{exponent}") == value and not digits.startswith("0") and not digits.endswith("0")
        longer += len(digits) > len(repr(value).partition("e")[0].replace(".", "").strip("0"))
    assert longer < 0.005 * len(values)
