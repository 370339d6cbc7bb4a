"""gAUC against scikit-learn, group by group, and its error against resampled groups."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from ctrpipe.common.grouped_auc import group_aucs


def rows(groups: int = 60, seed: int = 3):
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 30, groups)
    group = np.repeat(10**6 + 97 * random.permutation(10 * groups)[:groups], sizes)
    labels = (random.random(len(group)) < np.repeat(random.random(groups), sizes)).astype(np.float32)
    scores = np.round(random.normal(size=len(group)) + labels, 1)  # with ties
    order = random.permutation(len(group))
    return group[order], labels[order], scores[order]


@pytest.mark.parametrize("by", ["impressions", "clicks"])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_mean_of_the_groups_auc(by, weighted):
    group, labels, scores = rows()
    weights = np.random.default_rng(1).integers(1, 4, len(group)).astype(np.float32) if weighted else None
    aucs, masses, one_class = [], [], 0
    for number in np.unique(group):
        own = group == number
        mass = None if weights is None else weights[own]
        if len(set(labels[own])) < 2:
            one_class += 1
            continue
        aucs.append(roc_auc_score(labels[own], scores[own], sample_weight=mass))
        mass = np.ones(own.sum()) if mass is None else mass
        masses.append(mass.sum() if by == "impressions" else mass @ labels[own])
    found = group_aucs(group, labels, scores, weights, by)
    np.testing.assert_allclose(found.aucs, aucs, atol=1e-9)
    assert found.value == pytest.approx(np.average(aucs, weights=masses)) and found.one_class == one_class > 3


def test_a_rate_counts_as_its_clicks_and_an_unknown_label_not_at_all():
    group = np.array([5, 5, 5, 5, 9, 9])
    labels = np.array([0.25, 0.5, np.nan, 0.0, 0.0, 0.0])
    scores = np.array([0.1, 0.3, 0.9, 0.2, 0.4, 0.5])
    apart = np.repeat([0.1, 0.3, 0.2], 4)  # each row as four
    expected = roc_auc_score([1, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0], apart)
    found = group_aucs(group, labels, scores)
    np.testing.assert_allclose(found.aucs, [expected])
    assert found.one_class == 1


def test_the_error_is_that_of_other_groups():
    values = []
    for seed in range(400):
        group, labels, scores = rows(groups=80, seed=seed)
        found = group_aucs(group, labels, scores)
        values.append((found.value, np.linalg.norm(found.components)))
    means, errors = np.array(values).T
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.15)


def test_without_a_group_of_both_classes_there_is_none():
    assert group_aucs(np.array([1, 1, 2]), np.array([1, 1, 0]), np.arange(3.0)).value is None
    assert group_aucs(np.zeros(0, np.int64), np.zeros(0), np.zeros(0)).value is None
