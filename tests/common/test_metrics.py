import numpy as np
import pytest
import sklearn.metrics

from ctrpipe.common import metrics


@pytest.fixture(params=[0, 1, 2])
def scored(request):
    random = np.random.default_rng(request.param)
    p = random.random(5000).astype(np.float32)
    p = np.round(p, 2) if request.param else p  # ties
    return (random.random(5000) < p).astype(np.float32), p


def test_auc_and_log_loss_equal_scikit_learn(scored):
    y, p = scored
    assert metrics.auc(y, p) == pytest.approx(sklearn.metrics.roc_auc_score(y, p), abs=1e-12)
    inner = np.clip(p.astype(np.float64), 1e-7, 1 - 1e-7)
    assert metrics.log_loss(y, p) == pytest.approx(sklearn.metrics.log_loss(y, inner), rel=1e-9)


def test_rig_is_zero_for_the_base_rate_and_near_one_for_the_truth():
    y = np.array([0, 0, 0, 1] * 25, np.float32)
    assert metrics.rig(y, np.full(100, 0.25)) == pytest.approx(0, abs=1e-12)
    assert metrics.rig(y, y) == pytest.approx(1, abs=1e-5)


def test_calibration_is_predicted_over_observed():
    assert metrics.calibration(np.array([0, 1, 0, 1]), np.array([0.2, 0.4, 0.1, 0.3])) == pytest.approx(0.5)


def test_ece_of_a_shifted_score_is_the_shift():
    y = np.tile([0, 1], 500)
    assert metrics.ece(y, np.full(1000, 0.6)) == pytest.approx(0.1)
    assert metrics.ece(y, np.full(1000, 0.5)) == pytest.approx(0)


def test_ece_does_not_depend_on_the_order_of_equal_predictions(scored):
    labels = np.sort(np.arange(1000) % 4 == 0)
    assert metrics.ece(labels, np.full(1000, 0.25)) == pytest.approx(0, abs=1e-12)
    y, p = scored
    order = np.lexsort((y, p))
    assert metrics.ece(y[order], p[order]) == pytest.approx(metrics.ece(y, p), abs=1e-12)


def test_ece_is_that_of_bins_of_equal_mass_where_no_predictions_are_equal():
    random = np.random.default_rng(3)
    p = random.permutation(np.linspace(0.01, 0.6, 1000))
    y = random.random(1000) < p**2
    bins = np.array_split(np.argsort(p), 20)
    expected = sum(len(rows) / 1000 * abs(p[rows].mean() - y[rows].mean()) for rows in bins)
    assert metrics.ece(y, p) == pytest.approx(expected)


def test_ece_if_calibrated_is_the_mean_over_labels_drawn_by_the_predictions():
    random = np.random.default_rng(5)
    p = random.beta(1, 5, 4000).round(3)
    drawn = [metrics.ece(random.random(4000) < p, p) for _ in range(300)]
    assert metrics.ece_if_calibrated(p) == pytest.approx(np.mean(drawn), rel=0.03)
    assert metrics.ece_if_calibrated(p[:0]) is None


def test_a_reliability_diagram_has_the_means_of_bins_and_wilson_s_intervals():
    random = np.random.default_rng(3)
    p = random.permutation(np.linspace(0.01, 0.6, 1000))
    y = random.random(1000) < p**2
    found = metrics.reliability(y, p)
    for row, rows in zip(found, np.array_split(np.argsort(p), 20), strict=True):
        assert row["examples"] == 50
        assert row["predicted"] == pytest.approx(p[rows].mean()) and row["observed"] == pytest.approx(y[rows].mean())
        assert row["low"] <= row["observed"] <= row["high"] and row["high"] - row["low"] > 0.05
        for end in (row["low"], row["high"]):  # where a rate's own error reaches the observed share
            assert (row["observed"] - end) ** 2 == pytest.approx(1.959964**2 * end * (1 - end) / 50, abs=1e-9)
    [alone] = metrics.reliability(np.arange(8) % 4 == 0, np.full(8, 0.3))
    assert (alone["predicted"], alone["observed"], alone["examples"]) == (pytest.approx(0.3), 0.25, 8)


def test_a_row_of_weight_two_is_the_row_twice(scored):
    y, p = scored
    weights = np.random.default_rng(4).integers(0, 4, len(y))
    found = metrics.summarise(y, p, weights)
    expected = metrics.summarise(np.repeat(y, weights), np.repeat(p, weights))
    for name in ("auc", "log_loss", "rig", "calibration", "ece"):
        assert found[name] == pytest.approx(expected[name], rel=1e-12)
    assert found["examples"] == 5000 and found["ece_if_calibrated"] > expected["ece_if_calibrated"]
    diagram, of_rows = (
        metrics.reliability(y, p, weights),
        metrics.reliability(np.repeat(y, weights), np.repeat(p, weights)),
    )
    for name in ("predicted", "observed"):
        np.testing.assert_allclose([row[name] for row in diagram], [row[name] for row in of_rows], rtol=1e-12)
    assert sum(row["examples"] for row in diagram) == np.count_nonzero(weights)
    for row, narrower in zip(diagram, of_rows, strict=True):
        assert row["high"] - row["low"] > narrower["high"] - narrower["low"]
    assert metrics.auc(y, p, weights) == pytest.approx(sklearn.metrics.roc_auc_score(y, p, sample_weight=weights))


def test_weights_of_one_change_nothing(scored):
    y, p = scored
    found, expected = metrics.summarise(y, p, np.ones(len(y))), metrics.summarise(y, p)
    assert found == {name: pytest.approx(value, rel=1e-12) for name, value in expected.items()}


def test_the_chance_ece_of_weighted_rows_is_the_mean_over_labels_drawn_by_the_predictions():
    random = np.random.default_rng(5)
    p, weights = random.beta(1, 5, 4000).round(3), random.integers(0, 5, 4000)
    drawn = [metrics.ece(random.random(4000) < p, p, weights) for _ in range(300)]
    assert metrics.ece_if_calibrated(p, weights) == pytest.approx(np.mean(drawn), rel=0.03)


def test_without_weight_nothing_is_defined(scored):
    y, p = scored
    found = metrics.summarise(y, p, np.zeros(len(y)))
    assert {value for name, value in found.items() if name != "examples"} == {None}
    one_class = metrics.summarise(y, p, y)
    assert one_class["auc"] is None and one_class["rig"] is None and one_class["calibration"] is not None


def test_undefined_metrics_are_none():
    found = metrics.summarise(np.zeros(3), np.full(3, 0.1))
    assert found["auc"] is None and found["rig"] is None and found["calibration"] is None
    assert found["log_loss"] == pytest.approx(-np.log(0.9))
    assert metrics.summarise(np.zeros(0), np.zeros(0))["log_loss"] is None


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_without_a_label_are_left_out(scored, weighted):
    y, p = scored
    weights = np.arange(len(y)) % 3 if weighted else None
    known = np.arange(len(y)) % 4 != 1
    given = np.where(known, y, np.nan)
    kept = None if weights is None else weights[known]
    found = metrics.summarise(given, p, weights)
    assert found == metrics.summarise(y[known], p[known], kept) and found["examples"] == known.sum()
    for metric in (metrics.auc, metrics.log_loss, metrics.rig, metrics.calibration, metrics.ece, metrics.reliability):
        assert metric(given, p, weights) == metric(y[known], p[known], kept)
    nothing = metrics.summarise(np.full(3, np.nan), p[:3])
    assert nothing["examples"] == 0 and nothing["auc"] is nothing["log_loss"] is nothing["calibration"] is None


def test_a_rate_is_so_many_clicks_of_so_many_rows(scored):
    """Rows of impressions and clicks against each impression as a row, in scikit-learn."""
    _, p = scored
    p, random = p[:400], np.random.default_rng(7)
    shown = random.integers(1, 30, 400)
    clicked = random.binomial(shown, p * 0.5 + 0.1)
    single = np.concatenate(
        [np.repeat([1.0, 0.0], [ones, count - ones]) for ones, count in zip(clicked, shown, strict=True)]
    )
    scores = np.repeat(p, shown)
    found = metrics.summarise((clicked / shown).astype(np.float32), p, shown)
    assert found["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(single, scores), abs=1e-6)
    inner = np.clip(scores.astype(np.float64), 1e-7, 1 - 1e-7)
    assert found["log_loss"] == pytest.approx(sklearn.metrics.log_loss(single, inner), rel=1e-6)
    expected = metrics.summarise(single, scores)
    for name in ("rig", "calibration", "ece", "ece_if_calibrated"):
        assert found[name] == pytest.approx(expected[name], rel=1e-4), name
    pairs = zip(metrics.reliability(clicked / shown, p, shown), metrics.reliability(single, scores), strict=True)
    for one, other in pairs:
        assert [one[key] for key in ("predicted", "observed", "low", "high")] == pytest.approx(
            [other[key] for key in ("predicted", "observed", "low", "high")], rel=1e-6
        )
    equal = metrics.auc(np.full(400, 0.25), p)  # each row is a quarter click: no order is better than another
    assert equal == pytest.approx(0.5)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_metrics_of_numbers_equal_scikit_learn_s(weighted):
    random = np.random.default_rng(0)
    y, p = random.gamma(2, 30, 500).astype(np.float32), random.gamma(2, 30, 500).astype(np.float32)
    w = random.integers(0, 4, 500) if weighted else None
    y[:20] = np.nan
    own = None if w is None else w[20:]
    found = metrics.summarise_numbers(y, p, w)
    expected = {
        "rmse": sklearn.metrics.root_mean_squared_error(y[20:], p[20:], sample_weight=own),
        "mae": sklearn.metrics.mean_absolute_error(y[20:], p[20:], sample_weight=own),
        "r2": sklearn.metrics.r2_score(y[20:], p[20:], sample_weight=own),
        "calibration": np.average(p[20:], weights=own) / np.average(y[20:], weights=own),
        "mean": np.average(y[20:], weights=own),
        "examples": 480,
    }
    assert found == pytest.approx(expected, rel=1e-5)
    assert metrics.summarise_numbers(y[:5], p[:5]) == {**dict.fromkeys(expected), "examples": 0}
    assert metrics.r2(np.ones(3), p[:3]) is None
