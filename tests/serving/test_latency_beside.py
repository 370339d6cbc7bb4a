"""Two servers asked in turns: the order, the ratios, and their intervals."""

import time

import numpy as np
import pytest
from scipy import stats

from ctrpipe.serving.latency.beside import (
    Pairs,
    Rates,
    _Failed,
    ask_in_turns,
    ratio_of_percentiles,
    ratio_of_rates,
)

NONE = ({}, {})


def pairs(factor, seed, count=800, drift=0.0):
    """Lognormal latencies, those of the first server `factor` times as long; the machine drifts for both."""
    random = np.random.default_rng(seed)
    slow = np.exp(drift * np.sin(np.arange(count) / 40))
    first, second = (slow * random.lognormal(0, 0.3, count) for _ in range(2))
    return Pairs(factor * first, second, NONE)


def test_a_request_goes_to_both_servers_in_an_order_that_is_drawn():
    asked = []

    def ask(side):
        def call(body):
            asked.append((side, body))
            time.sleep(0.001 * (side + 1))

        return call

    bodies = [b"a0", b"a1", b"a2"], [b"b0", b"b1", b"b2"]
    found = ask_in_turns((ask(0), ask(1)), bodies, 0.3, np.random.default_rng(1))
    both = [tuple(sorted(asked[at : at + 2])) for at in range(0, len(asked), 2)]
    assert both[:4] == [((0, f"a{n % 3}".encode()), (1, f"b{n % 3}".encode())) for n in range(4)]
    assert len(found.first) == len(found.second) == len(asked) // 2 and found.errors == NONE
    began = [side for side, _ in asked[::2]]
    assert 0.2 < np.mean(began) < 0.8
    assert 0.001 <= np.median(found.first) < np.median(found.second) and min(found.second) >= 0.002


def test_a_pair_with_an_error_counts_as_an_error_and_not_as_a_latency():
    count = [0]

    def sometimes(body):
        count[0] += 1
        if count[0] % 3 == 0:
            raise _Failed("HTTP 503")

    found = ask_in_turns((sometimes, lambda body: time.sleep(0.0005)), ([b""], [b""]), 0.1, np.random.default_rng(0))
    assert found.errors[1] == {} and set(found.errors[0]) == {"HTTP 503"}
    assert found.errors[0]["HTTP 503"] == count[0] // 3 and len(found.first) == count[0] - count[0] // 3


@pytest.mark.slow
@pytest.mark.parametrize("percentile", [50, 90])
def test_the_interval_of_a_ratio_covers_it_as_often_as_it_says(percentile):
    random = np.random.default_rng(5)
    covered = 0
    for seed in range(60):
        found = ratio_of_percentiles(pairs(1.2, seed, count=480, drift=0.3), percentile, random)
        covered += found.low <= 1.2 <= found.high
        assert found.low <= found.value <= found.high
    assert covered >= 51  # of 60 at 95%: fewer happen once in 1,000 times


def test_the_value_is_the_ratio_of_the_percentiles_of_all_pairs():
    some = pairs(0.7, 1, count=100)
    found = ratio_of_percentiles(some, 50, np.random.default_rng(0))
    assert found.value == pytest.approx(np.median(some.first) / np.median(some.second))
    assert ratio_of_percentiles(pairs(1, 1, count=63), 50, np.random.default_rng(0)) is None


def test_the_ratio_of_rates_has_students_interval():
    first, second = np.array([110.0, 95.0, 130.0, 120.0]), np.array([100.0, 100.0, 110.0, 105.0])
    found = ratio_of_rates(Rates(first, second, NONE))
    logs = np.log(first / second)
    interval = stats.t.interval(0.95, 3, loc=logs.mean(), scale=logs.std(ddof=1) / 2)
    assert found.value == pytest.approx(stats.gmean(first / second))
    np.testing.assert_allclose([found.low, found.high], np.exp(interval))
    with_none = Rates(np.array([0.0, 110.0]), np.array([5.0, 100.0]), NONE)  # a server that refuses all
    assert ratio_of_rates(with_none) is None


def test_later_rounds_are_added():
    both = Pairs(np.array([1.0]), np.array([2.0]), ({"a": 1}, {})).and_then(
        Pairs(np.array([3.0]), np.array([4.0]), ({"a": 2}, {"b": 1}))
    )
    assert both.first.tolist() == [1, 3] and both.second.tolist() == [2, 4] and both.errors == ({"a": 3}, {"b": 1})
