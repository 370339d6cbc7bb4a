"""Whether training on a share of the negatives keeps its bar."""

import pytest

from studies.negative_sampling import verdict

ALL_ROWS = {"log_loss": 0.1, "calibration": 1.0, "seconds": 100.0}


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ({}, True),
        ({"log_loss": 0.1004}, True),
        ({"log_loss": 0.1006}, False),
        ({"log_loss": 0.0994}, False),
        ({"calibration": 0.985}, False),
        ({"calibration": 1.015}, False),
        ({"seconds": 26.0}, False),
    ],
)
def test_the_bar_is_kept_in_loss_calibration_and_time_together(changes, passed):
    judged = verdict(ALL_ROWS, {"log_loss": 0.1001, "calibration": 1.005, "seconds": 20.0} | changes)
    assert judged["passed"] is passed


def test_loss_and_time_are_measured_from_all_rows():
    judged = verdict(ALL_ROWS, {"log_loss": 0.1002, "calibration": 1.0, "seconds": 20.0})
    assert judged["log_loss_difference"] == pytest.approx(0.0002)
    assert judged["share_of_seconds"] == pytest.approx(0.2)
