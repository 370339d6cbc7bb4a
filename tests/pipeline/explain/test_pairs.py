"""How far the measures of pairs agree, against scipy."""

import numpy as np
import pytest
import scipy.stats

from ctrpipe.models.explain.interplay import Interplay
from ctrpipe.pipeline.explain.pairs import ColumnPair, rank_correlations


def pair(number: int, complementarity: float, p_value: float, picked: float | None) -> ColumnPair:
    interplay = Interplay(complementarity / 2, complementarity, p_value)
    return ColumnPair("a", f"b{number}", complementarity, (-1.0, 1.0), 0.0, interplay, picked=picked)


def agreement(pairs, first, second):
    found = [one for one in rank_correlations(pairs) if (one["first"], one["second"]) == (first, second)]
    return (found[0]["pairs"], found[0]["spearman"]) if found else None


def test_pairs_that_are_not_shown_to_act_together_are_equal_in_what_the_log_says():
    random = np.random.default_rng(3)
    noise = random.normal(size=40)
    picked = random.random(40) - noise
    acting = [number % 8 == 0 for number in range(40)]
    pairs = [
        pair(number, 5 + noise[number] if acting[number] else noise[number], 0.01 if acting[number] else 0.3, share)
        for number, share in enumerate(picked)
    ]
    shown = [one.complementarity if acts else 0.0 for one, acts in zip(pairs, acting, strict=True)]
    expected = scipy.stats.spearmanr(shown, picked)[0]
    for measure in ("interplay", "complementarity"):
        assert agreement(pairs, measure, "picked") == (40, pytest.approx(expected, abs=1e-12))
    assert scipy.stats.spearmanr([one.complementarity for one in pairs], picked)[0] < expected - 0.2


def test_only_pairs_that_have_both_measures_count():
    pairs = [pair(number, number, 0.01, None if number == 3 else -number) for number in range(6)]
    assert agreement(pairs, "complementarity", "picked") == (5, pytest.approx(-1))
    assert agreement(pairs, "picked", "permutation") is None


def test_a_measure_that_says_the_same_of_all_pairs_agrees_with_none():
    pairs = [pair(number, number, 0.3, number) for number in range(6)]
    assert agreement(pairs, "complementarity", "picked") is None
