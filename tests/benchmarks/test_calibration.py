"""The simulation of calibrations: its truths are what it says, and a trial is repeatable."""

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from scipy.special import expit

from benchmarks import calibration


@pytest.mark.parametrize("rate", [0.01, 0.17])
def test_the_log_odds_have_the_rate(rate):
    normal = scipy.stats.norm(calibration.mean_log_odds(rate), calibration.DEVIATION)
    found, _ = scipy.integrate.quad(lambda z: expit(z) * normal.pdf(z), -25, 25)
    assert found == pytest.approx(rate, rel=1e-5)


def test_a_trial_says_what_is_added_to_the_loss(monkeypatch):
    monkeypatch.setattr(calibration, "OTHERS", 2000)
    found, again = (calibration.measure("too high", 3000, 0.17, (1, 0)) for _ in range(2))
    assert found == again
    platt = found["platt"]
    assert platt.taken == "platt" and platt.alone == platt.chosen < -0.001
    truth, odds = np.array([-1.0, 0.0]), expit(np.array([-0.5, 0.25])).astype(np.float32)
    assert calibration.highest(truth, odds) == pytest.approx(np.exp(0.5), rel=1e-5)
    shown = calibration.summary([platt, platt])
    assert shown["alone"] == platt.alone and shown["taken"] == {"platt": 2}
