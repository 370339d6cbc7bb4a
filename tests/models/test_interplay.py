"""The additive model against scikit-learn's logistic regression, p-values without an interaction, and Holm's."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from ctrpipe.models.explain import interplay as interplay_module
from ctrpipe.models.explain.interplay import deviance, filled_cells, fit_additive, interplay


def counted(codes: np.ndarray, clicks: np.ndarray, sizes: tuple[int, int]) -> np.ndarray:
    counts = np.zeros((*sizes, 2), np.int64)
    np.add.at(counts, (codes[0], codes[1], clicks.astype(int)), 1)
    return counts


def log(
    random: np.random.Generator, rows: int, sizes: tuple[int, int], together: float, own: float = 0.7
) -> np.ndarray:
    """Counts of a log with additive effects and an interaction of strength `together`."""
    shares = [1 / np.arange(1, size + 1) for size in sizes]
    codes = np.stack([random.choice(len(one), rows, p=one / one.sum()) for one in shares])
    alone = [random.normal(0, own, size) for size in sizes]
    logits = alone[0][codes[0]] + alone[1][codes[1]] - 1 + together * random.normal(size=sizes)[codes[0], codes[1]]
    return counted(codes, random.random(rows) < 1 / (1 + np.exp(-logits)), sizes)


def test_the_additive_model_is_a_logistic_regression_on_both_columns():
    counts = log(np.random.default_rng(1), 4000, (3, 5), 0.5)
    cells, rows = filled_cells(counts.sum(axis=2))
    of_cells = counts[cells.first, cells.second][:, :, None]
    fitted = fit_additive(cells, of_cells, np.ones(of_cells.shape))
    expected = np.zeros((3, 5, 2))
    expected[cells.first, cells.second] = fitted[:, :, 0]
    np.testing.assert_allclose(fitted.sum(axis=(1, 2)), rows)
    kinds = [(x, y, click) for x in range(3) for y in range(5) for click in (0, 1)]
    hot = np.array([[*np.eye(3)[x], *np.eye(5)[y]] for x, y, _ in kinds])
    weights, clicks = counts.reshape(-1), np.array([click for *_, click in kinds])
    model = LogisticRegression(C=1e8, max_iter=2000, tol=1e-10).fit(hot, clicks, weights)
    rate = model.predict_proba(hot)[:, 1].reshape(3, 5, 2)[..., 0]
    np.testing.assert_allclose(expected[..., 1], rate * counts.sum(axis=2), atol=0.1)
    likelihood = -2 * (counts * np.log(np.stack([1 - rate, rate], -1))).sum()
    saturated = -2 * (counts * np.log(counts / counts.sum(axis=2, keepdims=True))).sum()
    found = deviance(of_cells, fitted)
    assert found == pytest.approx(likelihood - saturated, abs=0.01) and found > 20


@pytest.mark.parametrize(("sizes", "rows"), [((2, 2), 3000), ((12, 20), 3000)])
def test_p_values_of_columns_that_add_up_are_as_often_small_as_they_say(sizes, rows):
    random = np.random.default_rng(2)
    found = [interplay(log(random, rows, sizes, 0.0), 40, random) for _ in range(120)]
    p_values = np.array([one.p_value for one in found])
    assert 0.35 < p_values.mean() < 0.65 and (p_values < 0.05).mean() < 0.13 and p_values.min() > 1e-5
    assert abs(np.mean([one.z for one in found])) < 0.5


@pytest.mark.slow
@pytest.mark.parametrize("own", [0.0, 0.7])
@pytest.mark.parametrize("rows", [200, 3000])
def test_a_log_of_few_rows_a_value_raises_no_false_alarm(rows, own):
    """Observed rates of rare values vary more than their true rates: logs drawn from them would have too small a G²."""
    random = np.random.default_rng(5)
    found = [interplay(log(random, rows, (62, 62), 0.0, own), 40, random).p_value for _ in range(40)]
    assert min(found) > 1e-3 and np.mean(np.array(found) < 0.05) < 0.16 and 0.35 < np.mean(found)


def test_columns_that_act_together_have_bits_and_a_small_p_value():
    random = np.random.default_rng(3)
    xor = np.zeros((2, 2, 2), np.int64)
    xor[0, 0, 0] = xor[1, 1, 0] = xor[0, 1, 1] = xor[1, 0, 1] = 500
    found = interplay(xor, 40, random)  # each alone says nothing, both together one bit
    assert found.bits == pytest.approx(1, abs=0.01) and found.p_value < 1e-12 and found.z > 100
    assert interplay(log(random, 20000, (12, 20), 0.5), 40, random).p_value < 1e-12


def test_a_pair_on_the_border_does_not_depend_on_the_draws(monkeypatch):
    counts = log(np.random.default_rng(8), 4000, (6, 6), 0.3)
    found = [interplay(counts, 40, np.random.default_rng(seed)).z for seed in range(12)]
    monkeypatch.setattr(interplay_module, "MORE", 0)
    few = [interplay(counts, 40, np.random.default_rng(seed)).z for seed in range(12)]
    assert 3 < np.mean(found) < 9 and np.std(found) < 0.6 * np.std(few)


def test_columns_of_which_one_tells_the_other_leave_nothing_to_test():
    counts = np.zeros((3, 3, 2), np.int64)
    counts[np.arange(3), np.arange(3)] = [[50, 10], [20, 30], [0, 5]]
    found = interplay(counts, 10, np.random.default_rng(4))
    assert (found.bits, found.z, found.p_value) == (0, 0, 1)
