"""Metrics of candidate lists, against scikit-learn and against their definitions, list by list."""

import math

import numpy as np
import pytest
from sklearn.metrics import ndcg_score, roc_auc_score

from ctrpipe.common.grouped_auc import group_aucs
from ctrpipe.pipeline.evaluation.lists import (
    Lists,
    effective_catalogue_size,
    hit_rate,
    ndcg,
    popularity_strata,
    reciprocal_rank,
    shown_catalogue,
    take_rate,
    taken_catalogue,
)


@pytest.fixture
def drawn() -> tuple[Lists, np.ndarray]:
    """Lists of different lengths in mixed order, with none, one or several positive candidates, and scores."""
    random = np.random.default_rng(0)
    lists = random.permutation(np.repeat(np.arange(30), random.integers(2, 20, 30)))
    labels = (random.random(len(lists)) < 0.25).astype(np.float32)
    return Lists(lists, random.integers(0, 15, len(lists)), labels), random.permutation(len(lists)).astype(float)


def each(lists: Lists, scores: np.ndarray):
    """The labels and scores of each list."""
    for number in range(lists.count):
        of = lists.lists == number
        yield lists.labels[of], scores[of]


@pytest.mark.parametrize("k", [1, 3, 10])
def test_ndcg_is_that_of_scikit_learn(drawn, k):
    lists, scores = drawn
    found = ndcg(lists, lists.ranks(scores), k)
    for value, (labels, own) in zip(found, each(lists, scores), strict=True):
        if labels.any():
            assert value == pytest.approx(ndcg_score([labels], [own], k=k))
        else:
            assert math.isnan(value)


@pytest.mark.parametrize("k", [1, 3, 10])
def test_hits_and_reciprocal_ranks_are_those_of_the_sorted_list(drawn, k):
    lists, scores = drawn
    ranks = lists.ranks(scores)
    hits, reciprocal = hit_rate(lists, ranks, k), reciprocal_rank(lists, ranks)
    for number, (labels, own) in enumerate(each(lists, scores)):
        places = np.flatnonzero(labels[np.argsort(-own)]) + 1
        assert hits[number] == float(len(places) > 0 and places[0] <= k)
        assert reciprocal[number] == pytest.approx(1 / places[0] if len(places) else 0)


def test_equal_scores_stand_in_an_order_by_chance():
    lists = Lists(np.repeat(np.arange(2000), 10), np.zeros(20_000, np.int64), np.tile([1.0] + [0.0] * 9, 2000))
    ranks = lists.ranks(np.zeros(20_000))
    assert hit_rate(lists, ranks, 3).mean() == pytest.approx(0.3, abs=0.03)
    assert reciprocal_rank(lists, ranks).mean() == pytest.approx(np.mean(1 / np.arange(1, 11)), abs=0.02)


def test_grouped_auc_is_the_mean_of_the_users_auc_by_their_impressions(drawn):
    lists, scores = drawn
    scores = np.round(scores / 20)  # with ties
    aucs, sizes = [], []
    for labels, own in each(lists, scores):
        if 0 < labels.sum() < len(labels):
            aucs.append(roc_auc_score(labels, own))
            sizes.append(len(labels))
    assert group_aucs(lists.lists, lists.labels, scores).value == pytest.approx(np.average(aucs, weights=sizes))
    assert len(set(sizes)) > 3 and len(sizes) < lists.count
    assert group_aucs(np.array([0, 0, 1]), np.array([1, 1, 0]), np.arange(3.0)).value is None


@pytest.mark.parametrize(
    ("shares", "size"), [([1.0], 1), ([0.25] * 4, 4), ([0, 7, 0], 1), ([3, 1], 2 * (0.75 + 0.5) - 1), ([], 0)]
)
def test_the_effective_catalogue_size(shares, size):
    assert effective_catalogue_size(np.array(shares, float)) == pytest.approx(size)


def test_what_is_shown_and_taken_is_counted_in_the_first_places():
    # Two lists of three; item 0 is the most popular, then 1, 2, 3.
    lists = Lists(np.array([0, 0, 0, 1, 1, 1]), np.array([0, 1, 2, 0, 1, 3]), np.array([1.0, 0, 0, 0, 0, 1]))
    popularity = np.array([9, 5, 2, 1])
    ranks = lists.ranks(np.array([3.0, 2, 1, 3, 1, 2]))
    assert shown_catalogue(lists, ranks, 1) == 1  # both show item 0
    # Of four places, item 0 has two, 1 and 3 have one each: 2 (1 * .5 + 2 * .25 + 3 * .25) - 1.
    assert shown_catalogue(lists, ranks, 2) == pytest.approx(2.5)
    assert (
        take_rate(lists, ranks, 1) == 0.5 and take_rate(lists, ranks, 2) == 0.5 and take_rate(lists, ranks, 3) == 1 / 3
    )
    assert taken_catalogue(lists, popularity, 3) == 1 and taken_catalogue(lists, popularity, 4) == 2


def test_strata_have_about_a_third_of_the_events_each():
    random = np.random.default_rng(1)
    popularity = random.permutation((5000 / np.arange(1, 400)).astype(int))
    popularity[7] = 0
    strata = popularity_strata(popularity)
    shares = np.bincount(strata, popularity) / popularity.sum()
    np.testing.assert_allclose(shares, 1 / 3, atol=0.16)  # the most popular item alone has 15%
    assert popularity[strata == 0].min() >= popularity[strata == 1].max() >= popularity[strata == 2].max()
    assert strata[7] == 2


def test_lists_without_two_classes_are_not_judged():
    lists = Lists(np.array([0, 0, 1, 1, 2, 2]), np.zeros(6, np.int64), np.array([1.0, 0, 1, 1, 0, 0]))
    assert lists.judged().tolist() == [True, False, False]
