"""What an interval says of a claim."""

import pytest

from benchmarks.harness.verdicts import CANNOT_BE_TOLD, DOES_NOT_HOLD, HOLDS, verdict


@pytest.mark.parametrize(
    ("said", "interval", "expected"),
    [
        ("gain", (0.0001, 0.02), HOLDS),
        ("gain", (-0.0001, 0.02), CANNOT_BE_TOLD),
        ("gain", (-0.02, -0.0001), DOES_NOT_HOLD),
        ("no loss", (-0.0049, 0.02), HOLDS),
        ("no loss", (-0.0051, 0.02), CANNOT_BE_TOLD),
        ("no loss", (-0.02, -0.0051), DOES_NOT_HOLD),
        ("no gain", (-0.02, 0.0049), HOLDS),
        ("no gain", (-0.02, 0.0051), CANNOT_BE_TOLD),
        ("no gain", (0.0051, 0.02), DOES_NOT_HOLD),
    ],
)
def test_a_verdict_needs_the_whole_interval_on_one_side(said, interval, expected):
    assert verdict(said, interval, margin=0.005) == expected
