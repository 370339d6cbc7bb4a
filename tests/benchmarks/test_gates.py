"""The simulations of gates, at a few repeats: the rules that are compared, and what the tables hold."""

import numpy as np
import pytest
import scipy.stats

from benchmarks import gates
from ctrpipe.common.estimates import auc_estimate


@pytest.fixture(autouse=True)
def small(monkeypatch):
    for name, value in (("ROWS", 2000), ("CALIBRATION_REPEATS", 20), ("CALIBRATION_ROWS", 10_000), ("LIST_ROWS", 1000)):
        monkeypatch.setattr(gates, name, value)


def test_the_old_rules_are_the_drop_and_delongs_test():
    labels, random = np.arange(400) % 2 * 1.0, np.random.default_rng(0)
    better, worse = (auc_estimate(labels, labels * shift + random.random(400)) for shift in (0.8, 0.2))
    drop = better.value - worse.value
    assert gates._drop_alone([worse], [better]) and not gates._drop_alone([better], [worse])
    error = np.linalg.norm(better.components - worse.components)
    sure = drop - scipy.stats.norm.ppf(0.95) * error
    assert gates._rows_alone([worse], [better]) == (sure > 0.001) and sure > 0.001
    assert not gates._rows_alone([better], [worse])


@pytest.mark.slow
def test_a_report_has_a_rate_for_each_rule_and_each_list():
    report = {
        "drops": gates.drop_rates(2, 0),
        "slices": gates.slice_rates(2, 0),
        "compare": gates.list_rates(2, 0),
        "drift": {"before": 0.5, "after": 0.0, "moved_found": 1.0},
    }
    assert set(report["drops"]) == set(gates.ERRORS)
    for found in report["drops"].values():
        assert found["noise"] > 0 and set(found["rates"]) == set(gates.RULES)
    assert [(one["rate"], one["values"]) for one in report["slices"]] == [
        (rate, values) for rate in gates.RATES for values in gates.VALUES
    ]
    worst = report["slices"][-1]  # twenty values of 20 clicks each
    assert worst["before"] == 1 and worst["after"] == 0
    drops, slices, lists = gates.tables(report).renderables
    assert (drops.row_count, slices.row_count, lists.row_count) == (len(gates.RULES), 6, 3)


@pytest.mark.slow
def test_a_worse_model_is_worse_by_three_times_the_noise(monkeypatch):
    monkeypatch.setattr(gates, "CALIBRATION_REPEATS", 60)
    trainings = gates.simulated(0.2, 0)
    drops = []
    for seed in range(15):
        (equal, _), worse = trainings.draw(np.random.default_rng(seed))
        drops.append(np.mean([one.value for one in equal]) - np.mean([one.value for one in worse]))
    assert np.mean(drops) == pytest.approx(3 * trainings.noise, rel=0.35)
