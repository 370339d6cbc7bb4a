"""The test of a drop: rows and trainings together, on estimates and trainings that are drawn again."""

import math

import numpy as np
import pytest
import scipy.stats

from ctrpipe.common.estimates import Estimate
from ctrpipe.pipeline.config import Gates
from ctrpipe.pipeline.evaluation.gates import change_gate
from ctrpipe.pipeline.evaluation.trainings import ENOUGH_FREEDOM, STATED, noisy_difference

ROWS = 50


def draw(random: np.random.Generator, count: int, noise: float, mean: float, rows: np.ndarray) -> list[Estimate]:
    """Trainings whose metric varies by `noise`, on rows whose components are the same for all of them."""
    return [Estimate(float(value), rows) for value in mean + noise * random.normal(size=count)]


def components(random: np.random.Generator, error: float) -> np.ndarray:
    """Components of ROWS rows with this standard error."""
    values = random.normal(size=ROWS)
    return error * values / np.linalg.norm(values)


def test_one_training_a_side_has_the_rows_noise_and_the_stated_one():
    random = np.random.default_rng(0)
    first, second = components(random, 0.003), components(random, 0.002)
    found = noisy_difference([Estimate(0.75, first)], [Estimate(0.76, second)], 0.001)
    assert found.value == pytest.approx(0.01) and found.freedom is None
    error = math.sqrt(np.sum((first - second) ** 2) + 2 * 0.001**2)
    assert found.standard_error == pytest.approx(error)
    assert found.at_least(0.95) == pytest.approx(0.01 - scipy.stats.norm.ppf(0.95) * error)


def test_enough_trainings_on_the_same_rows_are_students_test():
    random = np.random.default_rng(1)
    same = components(random, 0.01)
    first, second = draw(random, 4, 0.002, 0.75, same), draw(random, 5, 0.002, 0.75, same)
    found = noisy_difference(first, second, 1.0)
    values = [[each.value for each in side] for side in (second, first)]
    expected = scipy.stats.ttest_ind(*values)
    assert found.value / found.standard_error == pytest.approx(expected.statistic)
    assert found.freedom == pytest.approx(7)
    assert found.at_least(0.95) == pytest.approx(expected.confidence_interval(0.90).low)


def test_few_trainings_are_pooled_with_the_stated_noise():
    same = components(np.random.default_rng(2), 0.01)
    first = [Estimate(value, same) for value in (0.750, 0.752, 0.754)]
    found = noisy_difference(first, [Estimate(0.75, same)], 0.001)
    variance = (2 * np.var([0.750, 0.752, 0.754], ddof=1) + ENOUGH_FREEDOM * 0.001**2) / (2 + ENOUGH_FREEDOM)
    assert found.standard_error == pytest.approx(math.sqrt(variance * (1 + 1 / 3)))
    assert found.freedom == pytest.approx(2 + ENOUGH_FREEDOM)


@pytest.mark.parametrize(("ours", "last"), [(1, 1), (3, 1), (1, 5), (3, 3), (5, 5)])
def test_an_equal_model_passes_and_one_worse_by_three_times_the_noise_does_not(ours, last):
    """Within binomial bounds of 99.9%. Of one training a side no rule can have both rates at 5%."""
    random, repeats, noise, rows_error = np.random.default_rng([ours, last]), 250, STATED["auc"], STATED["auc"]
    whole = math.sqrt(2 * noise**2 + rows_error**2)  # of the difference of two trainings
    wrong = np.zeros(2)
    for _ in range(repeats):
        for place, worse in enumerate((0.0, 3 * whole)):
            apart = components(random, rows_error)
            shift = rows_error * random.normal()  # what these rows do to the difference
            sides = [
                draw(random, ours, noise, 0.75 - worse + shift, apart),
                draw(random, last, noise, 0.75, np.zeros(ROWS)),
            ]
            passed = change_gate("auc", 0.0, Gates(), *sides)["passed"]
            wrong[place] += passed if worse else not passed
    let_through = 0.05 if ours + last > 2 else scipy.stats.norm.sf(3 - scipy.stats.norm.ppf(0.95))
    for found, most in zip(wrong, (0.05, let_through), strict=True):
        assert found <= scipy.stats.binom.ppf(0.999, repeats, most)
    assert wrong[0] >= 1  # the test gives nothing away


def test_a_test_of_rows_alone_blocks_many_equal_models():
    """The reference: what the gate did before it counted the noise of trainings."""
    random, blocked = np.random.default_rng(3), 0
    for _ in range(300):
        apart, shift = components(random, 0.001), 0.001 * random.normal()
        ours, last = draw(random, 1, 0.002, 0.75 + shift, apart), draw(random, 1, 0.002, 0.75, np.zeros(ROWS))
        blocked += not change_gate("auc", 0.0, Gates(training_noise={"auc": 0.0}), ours, last)["passed"]
    assert blocked / 300 == pytest.approx(scipy.stats.norm.sf(1.645 / 3), abs=0.09)


def test_the_log_loss_is_worse_where_it_is_higher():
    same = np.full(ROWS, 1e-6)
    for ours, passes in ((0.40, True), (0.46, False), (0.4505, True)):
        row = change_gate("log_loss", 0.0, Gates(), [Estimate(ours, same)], [Estimate(0.45, same)])
        assert row["passed"] == passes and row["value"] == pytest.approx(ours - 0.45)


def test_a_side_without_an_error_or_a_finite_value_is_said():
    same = [Estimate(0.75, np.zeros(ROWS))]
    row = change_gate("auc", 0.0, Gates(), [None], same)
    assert row["passed"] and row["reason"] == "the metric has no error on so few rows of a class"
    assert not change_gate("auc", 0.0, Gates(), [Estimate(math.nan, np.zeros(ROWS))], same)["passed"]
