"""The calibration of a column's values, their intervals, and how often chance blocks a calibrated model."""

import numpy as np
import pyarrow as pa
import pytest
import scipy.stats

from ctrpipe.common.significance import holm
from ctrpipe.pipeline.config import CalibrationBounds
from ctrpipe.pipeline.evaluation.gates import slice_gates
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows
from ctrpipe.pipeline.evaluation.slice_calibration import slice_calibrations


def draw(random: np.random.Generator, rows: int, rate: float, values: int) -> tuple[np.ndarray, ...]:
    """Values, probabilities and clicks of a model that knows the probabilities."""
    logits = np.log(rate / (1 - rate)) + random.normal(size=rows)
    probabilities = 1 / (1 + np.exp(-logits))
    return random.integers(values, size=rows), probabilities, (random.random(rows) < probabilities).astype(float)


def test_an_interval_is_clopper_and_pearsons():
    codes, probabilities, clicks = draw(np.random.default_rng(0), 3000, 0.1, 4)
    found = slice_calibrations(pa.array(codes.astype(str)), clicks, probabilities, None, 1)
    assert sorted(found.values) == ["0", "1", "2", "3"]
    p_values = found.p_values(0.1)
    for place, value in enumerate(found.values):
        own = codes == int(value)
        rows, count, expected = int(own.sum()), int(clicks[own].sum()), probabilities[own].sum()
        rate = scipy.stats.binomtest(count, rows).proportion_ci(0.9)
        assert found.calibrations[place] == pytest.approx(expected / count)
        assert found.interval(place, 0.9) == pytest.approx((expected / rate.high / rows, expected / rate.low / rows))
        few = scipy.stats.binom.cdf(count, rows, expected / 1.1 / rows)
        many = scipy.stats.binom.sf(count - 1, rows, expected / 0.9 / rows)
        assert p_values[place] == pytest.approx(min(1, 2 * min(few, many)))


@pytest.mark.parametrize("clicked", [0.0, 1.0])
def test_no_click_and_nothing_but_clicks_have_an_interval(clicked):
    found = slice_calibrations(pa.array(["a"] * 40), np.full(40, clicked), np.full(40, 0.5), None, 1)
    low, high = found.interval(0, 0.95)
    rate = scipy.stats.binomtest(int(40 * clicked), 40).proportion_ci(0.95)
    assert low == pytest.approx(0.5 / rate.high)
    assert high == (pytest.approx(0.5 / rate.low) if clicked else np.inf)
    assert found.p_values(0.2)[0] < 1e-6


def test_weights_count_as_fay_and_feuers_gamma_intervals():
    random = np.random.default_rng(1)
    _, probabilities, clicks = draw(random, 2000, 0.05, 1)
    weights = random.choice([0.5, 1, 4], 2000)
    found = slice_calibrations(pa.array(["a"] * 2000), clicks, probabilities, weights, 1)
    observed, squares = weights @ clicks, weights**2 @ clicks
    around = weights**2 @ (clicks - observed / (weights @ probabilities) * probabilities) ** 2
    squares = max(squares, around)
    low = scipy.stats.gamma.ppf(0.05, observed**2 / squares, scale=squares / observed)
    more, more_squares = observed + 4, squares + 16
    high = scipy.stats.gamma.ppf(0.95, more**2 / more_squares, scale=more_squares / more)
    expected = weights @ probabilities
    assert found.interval(0, 0.9) == pytest.approx((expected / high, expected / low))
    assert (found.rows[0], found.clicks[0]) == (2000, clicks.sum())


def test_a_row_of_several_values_counts_for_each_of_them_once():
    column, probabilities = pa.array(["a|b", "a", "b|b", "c"]), np.array([0.5, 0.25, 0.125, 0.0625])
    found = slice_calibrations(column, np.array([1.0, 0, 1, 1]), probabilities, None, 0.01, "|")
    sums = dict(zip(found.values, zip(found.rows, found.clicks, found.expected, strict=True), strict=True))
    assert sums == {"a": (2, 1, 0.75), "b": (2, 2, 0.625), "c": (1, 1, 0.0625)}


def test_rows_without_a_label_do_not_count():
    labels = np.array([1.0, np.nan, 0.0, np.nan])
    found = slice_calibrations(pa.array(["a", "a", "a", "b"]), labels, np.full(4, 0.5), None, 0.1)
    assert found.values == ["a"] and (found.rows[0], found.clicks[0], found.expected[0]) == (2, 1, 1.0)


def test_a_value_is_judged_by_the_clicks_it_should_have():
    """`quiet` has no click where 30 are expected; `rare` has two rows."""
    column = pa.array(["usual"] * 300 + ["quiet"] * 300 + ["rare"] * 2)
    labels = np.array([1.0, 0, 0] * 100 + [0.0] * 300 + [1.0] * 2)
    scored = ScoredRows("rows", {"ctr": labels}, {"ctr": np.full(602, 0.1)}, {"site": column})
    bounds = CalibrationBounds(slices=["site"], max_error=0.9, min_clicks=20)
    [row] = slice_gates(bounds, scored, "ctr")
    assert not row["passed"] and row["value"] is None
    assert row["reason"].startswith("no click where site is quiet (300 rows, 0 clicks), 30.0 expected; 95% interval")
    assert row["reason"].endswith("to inf, of the largest of 2 values")


@pytest.mark.parametrize("rate", [0.02, 0.17, 0.8])
@pytest.mark.parametrize("weighted", [False, True])
def test_chance_blocks_a_calibrated_model_in_at_most_one_of_twenty(rate, weighted):
    """20 values a model. Weighted rows are from a log without most of its negatives."""
    random, repeats = np.random.default_rng([int(100 * rate), weighted]), 80
    codes, probabilities, clicks = draw(random, repeats * 3000, rate, 20 * repeats)
    weights = None
    if weighted:
        kept = (clicks > 0) | (random.random(len(clicks)) < 0.2)
        codes, probabilities, clicks = codes[kept], probabilities[kept], clicks[kept]
        weights = np.where(clicks > 0, 1.0, 5.0)
    names = np.array([f"{code:05d}" for code in range(20 * repeats)])  # in the order of the models
    column = pa.DictionaryArray.from_arrays(codes.astype(np.int32), names)

    def blocked(predicted: np.ndarray) -> int:
        found = slice_calibrations(column.cast(pa.string()), clicks, predicted, weights, 1)
        p_values = found.p_values(0.01)[np.argsort(found.values)].reshape(repeats, 20)
        return sum((holm(of_model) < 0.05).any() for of_model in p_values)

    assert blocked(probabilities) <= scipy.stats.binom.ppf(0.999, repeats, 0.05)
    off = np.where(codes % 20 == 7, 1 - (1 - probabilities) ** 4, probabilities)
    assert blocked(off) >= (0.7 * repeats if rate == 0.17 else 0)
