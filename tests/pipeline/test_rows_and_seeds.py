"""The difference of two models over rows and seeds: against slow references, and its rates of error by simulation."""

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from ctrpipe.common import metrics
from ctrpipe.common.estimates import (
    Estimate,
    auc_estimate,
    calibration_estimate,
    log_loss_estimate,
    mae_estimate,
    rig_estimate,
    rmse_estimate,
)
from ctrpipe.pipeline.compare.rows_and_seeds import difference
from studies.seed_noise import rates

ROWS = 300


@pytest.fixture
def random():
    return np.random.default_rng(7)


def log(random, rows=ROWS):
    logits = random.normal(-1, 1, rows)
    return logits, (random.random(rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)


def trainings(random, logits, count, noise=0.5):
    """Predictions with many ties, one a training."""
    return [(1 / (1 + np.exp(-logits - noise * random.normal(size=len(logits))))).round(2) for _ in range(count)]


def won_pairs(labels, scores):
    ahead = scores[labels > 0.5][:, None] - scores[labels < 0.5][None]
    return (ahead > 0) + 0.5 * (ahead == 0)


def test_the_covariance_of_two_aucs_is_delongs_of_all_pairs(random):
    logits, labels = log(random)
    both = trainings(random, logits, 2)
    found = [auc_estimate(labels, scores) for scores in both]
    won = [won_pairs(labels, scores) for scores in both]
    for estimate, scores, pairs in zip(found, both, won, strict=True):
        assert estimate.value == pytest.approx(sklearn.metrics.roc_auc_score(labels, scores))
        assert estimate.value == pytest.approx(pairs.mean())
    of_clicks, of_others = (np.cov([pairs.mean(axis=axis) for pairs in won]) for axis in (1, 0))
    expected = of_clicks / (labels > 0.5).sum() + of_others / (labels < 0.5).sum()
    components = np.stack([estimate.components for estimate in found])
    np.testing.assert_allclose(components @ components.T, expected)


@pytest.mark.parametrize(
    ("estimate", "metric"),
    [
        (rig_estimate, metrics.rig),
        (log_loss_estimate, metrics.log_loss),
        (calibration_estimate, metrics.calibration),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_variance_of_a_metric_is_the_jackknifes(random, estimate, metric, weighted):
    logits, labels = log(random)
    [scores] = trainings(random, logits, 1)
    weights = random.choice([0.5, 1.0, 2.0], ROWS) if weighted else None
    found = estimate(labels, scores, weights)
    assert found.value == pytest.approx(metric(labels, scores, weights))

    def one_less(row: int) -> list[np.ndarray | None]:
        return [None if values is None else np.delete(values, row) for values in (labels, scores, weights)]

    without = [metric(*one_less(row)) for row in range(ROWS)]
    jackknife = (ROWS - 1) / ROWS * np.sum((np.array(without) - np.mean(without)) ** 2)
    assert (found.components**2).sum() == pytest.approx(jackknife, rel=0.02)
    assert found.standard_error == pytest.approx(np.sqrt(jackknife), rel=0.01)


def test_one_training_on_each_side_is_delongs_test(random):
    logits, labels = log(random)
    first, second = trainings(random, logits, 2)
    found = difference([auc_estimate(labels, first)], [auc_estimate(labels, second)])
    apart = won_pairs(labels, second) - won_pairs(labels, first)
    variance = apart.mean(1).var(ddof=1) / apart.shape[0] + apart.mean(0).var(ddof=1) / apart.shape[1]
    assert found.difference == pytest.approx(apart.mean()) and found.standard_error == pytest.approx(variance**0.5)
    z = apart.mean() / variance**0.5
    assert found.t == pytest.approx(z) and found.p == pytest.approx(2 * scipy.stats.norm.sf(abs(z)))
    assert found.interval == pytest.approx(tuple(scipy.stats.norm.interval(0.95, apart.mean(), variance**0.5)))
    assert (found.seeds, found.seeds_error, found.freedom) == ((1, 1), None, None)


def test_several_trainings_have_the_variance_of_nested_readers(random):
    """Obuchowski and Rockette's estimate with Hillis's degrees of freedom, from the covariance matrix of the AUCs."""
    logits, labels = log(random)
    sides = [trainings(random, logits, count, noise) for count, noise in ((3, 0.5), (4, 1.0))]
    first, second = ([auc_estimate(labels, scores) for scores in side] for side in sides)
    found = difference(first, second)
    values = [np.array([sklearn.metrics.roc_auc_score(labels, scores) for scores in side]) for side in sides]
    pairs = [won_pairs(labels, scores) for side in sides for scores in side]
    of_clicks, of_others = (np.cov([one.mean(axis=axis) for one in pairs]) for axis in (1, 0))
    covariance = of_clicks / pairs[0].shape[0] + of_others / pairs[0].shape[1]
    groups = [range(3), range(3, 7)]
    within = [np.mean([covariance[i, j] for i in group for j in group if i != j]) for group in groups]
    across = np.mean([covariance[i, j] for i in groups[0] for j in groups[1]])
    of_seeds = [side.var(ddof=1) / len(side) for side in values]
    variance = sum(of_seeds) + max(sum(within) - 2 * across, 0)
    freedom = variance**2 / (of_seeds[0] ** 2 / 2 + of_seeds[1] ** 2 / 3)
    assert found.difference == pytest.approx(values[1].mean() - values[0].mean())
    assert found.standard_error == pytest.approx(variance**0.5) and found.freedom == pytest.approx(freedom)
    assert found.seeds_error == pytest.approx(sum(of_seeds) ** 0.5)
    assert found.p == pytest.approx(2 * scipy.stats.t.sf(abs(found.t), freedom))
    expected = scipy.stats.t.interval(0.95, freedom, found.difference, variance**0.5)
    assert found.interval == pytest.approx(tuple(expected))


def test_what_is_trained_without_chance_may_stand_there_twice(random):
    """Its variance over seeds is 0 and that over rows its own, as if it had been trained once, by no seed."""
    logits, labels = log(random)
    fixed, *others = (auc_estimate(labels, scores) for scores in trainings(random, logits, 4))
    found = difference([fixed, fixed], others)
    spread = np.var([one.value for one in others], ddof=1) / 3
    assert found.seeds_error == pytest.approx(spread**0.5) and found.freedom >= 2


@pytest.mark.parametrize(("estimate", "metric"), [(rmse_estimate, metrics.rmse), (mae_estimate, metrics.mae)])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_variance_of_an_error_of_numbers_is_the_jackknifes(random, estimate, metric, weighted):
    labels, numbers = random.gamma(2, 5, ROWS), random.gamma(2, 5, ROWS)
    weights = random.choice([0.5, 1.0, 2.0], ROWS) if weighted else np.ones(ROWS)
    found = estimate(labels, numbers, weights)
    assert found.value == pytest.approx(metric(labels, numbers, weights))
    without = [metric(*(np.delete(values, row) for values in (labels, numbers, weights))) for row in range(ROWS)]
    jackknife = (ROWS - 1) / ROWS * np.sum((np.array(without) - np.mean(without)) ** 2)
    assert found.standard_error == pytest.approx(np.sqrt(jackknife), rel=0.02)
    unknown = np.append(labels, np.nan), np.append(numbers, 7.0), np.append(weights, 1.0)
    assert estimate(*unknown).value == found.value and estimate(labels, numbers, np.eye(ROWS)[0]) is None
    exact = estimate(labels, labels, weights)
    assert exact.value == exact.standard_error == 0


def test_rows_of_weight_0_are_no_evidence(random):
    logits, labels = log(random)
    [scores] = trainings(random, logits, 1)
    kept = random.random(ROWS) < 0.5
    for estimate in (auc_estimate, rig_estimate, log_loss_estimate, calibration_estimate):
        found, expected = estimate(labels, scores, kept.astype(float)), estimate(labels[kept], scores[kept])
        assert found.value == pytest.approx(expected.value)
        assert found.standard_error == pytest.approx(expected.standard_error)
        assert estimate(labels, scores, np.eye(ROWS)[0]) is None


def test_one_class_and_few_rows_have_no_estimate():
    ones, scores = np.ones(5), np.linspace(0.1, 0.5, 5)
    assert auc_estimate(ones, scores) is None and rig_estimate(ones, scores) is None
    assert auc_estimate(np.array([1.0, 0, 0, 0, 0]), scores) is None


def test_equal_models_differ_by_nothing():
    same = Estimate(0.7, np.array([0.1, -0.1]))
    found = difference([same], [same])
    assert (found.difference, found.t, found.p, found.interval) == (0.0, None, None, (0.0, 0.0))


@pytest.mark.slow
def test_trainings_of_one_model_are_called_different_as_often_as_said_and_a_better_model_is_found():
    """Small; `python -m studies.seed_noise` has the sizes of real comparisons."""
    rows_and_seeds, rows_alone, _ = rates(rows=3000, seeds=4, repeats=200, errors=(0.4, 0.4), seed=1)
    assert rows_and_seeds <= 0.09 < 0.2 < rows_alone  # of 200, three standard errors above 5%
    assert rates(rows=3000, seeds=4, repeats=40, errors=(0.4, 0.1), seed=2)[0] > 0.9


def test_the_error_of_an_auc_of_rates_is_that_of_a_jackknife(random):
    """Rows of impressions are drawn as rows: leaving each out in turn gives the error."""
    shown = random.integers(1, 30, 150)
    scores = random.normal(size=150).round(1)
    rates = random.binomial(shown, 1 / (1 + np.exp(1 - scores))) / shown
    found = auc_estimate(rates, scores, shown)
    assert found.value == pytest.approx(metrics.auc(rates, scores, shown), abs=1e-12)
    rows = np.arange(150)
    left_out = [metrics.auc(rates[rows != row], scores[rows != row], shown[rows != row]) for row in rows]
    assert found.standard_error == pytest.approx(np.sqrt(149**2 / 150 * np.var(left_out, ddof=1)), rel=0.05)
