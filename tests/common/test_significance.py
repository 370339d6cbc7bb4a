"""Quantiles and p-values against SciPy's distributions, and Holm's correction by hand."""

import numpy as np
import pytest
import scipy.stats

from ctrpipe.common.significance import NORMAL_QUANTILE, holm, quantile, two_sided


@pytest.mark.parametrize("probability", [0.025, 0.5, 0.95, 0.999])
def test_quantiles_are_those_of_the_two_distributions(probability):
    assert quantile(probability) == pytest.approx(scipy.stats.norm.ppf(probability), abs=1e-12)
    assert quantile(probability, 3.5) == pytest.approx(scipy.stats.t.ppf(probability, 3.5), abs=1e-12)


def test_half_of_a_95_percent_interval_is_1_96_standard_errors():
    assert pytest.approx(1.959963984540054, rel=1e-15) == NORMAL_QUANTILE


@pytest.mark.parametrize("statistic", [-2.5, 0.0, 1.0, 4.0])
def test_p_values_are_of_both_sides(statistic):
    assert two_sided(statistic) == pytest.approx(2 * scipy.stats.norm.sf(abs(statistic)))
    assert two_sided(statistic, 7) == pytest.approx(2 * scipy.stats.t.sf(abs(statistic), 7))


def test_adjusted_p_values_are_holms():
    # By hand: 0.01 x 4, then 0.02 x 3, 0.03 x 2 which is no less than the one before, 0.6.
    np.testing.assert_allclose(holm([0.02, 0.6, 0.01, 0.03]), [0.06, 0.6, 0.04, 0.06])
    np.testing.assert_allclose(holm([0.5, 0.9, 0.4]), [1, 1, 1])
