"""What is planted in the logs of studies.explain, and how findings are counted."""

import itertools

import numpy as np
import pytest

from studies.explain import (
    COLUMNS,
    IMPORTANT,
    PAIR_DEVIATION,
    PAIRS,
    frequencies,
    interval,
    judge,
    name_of,
    plant,
    summary,
    write_log,
)


@pytest.mark.parametrize("seed", [0, 3])
def test_a_truth_has_so_many_columns_and_pairs_and_a_pair_has_no_effect_on_one_column(seed):
    truth = plant(seed)
    assert len(truth.important) == IMPORTANT and len(truth.pair_names) == PAIRS and len(truth.values) == COLUMNS
    assert plant(seed).pairs.keys() == truth.pairs.keys() != plant(seed + 1).pairs.keys()
    for (first, second), (of_first, of_second) in truth.pairs.items():
        shares = frequencies(truth.values[first]), frequencies(truth.values[second])
        effect = of_first @ of_second.T
        np.testing.assert_allclose(shares[0] @ effect, 0, atol=1e-9)
        np.testing.assert_allclose(effect @ shares[1], 0, atol=1e-9)
        assert shares[0] @ effect**2 @ shares[1] == pytest.approx(PAIR_DEVIATION**2)


def test_the_logits_of_a_log_are_the_sum_of_what_is_planted(tmp_path):
    truth = plant(1)
    codes = np.stack([np.arange(6) % count for count in truth.values], axis=1)
    flat = truth.logits(np.zeros_like(codes))
    assert np.ptp(flat) == 0
    noise = next(column for column in range(COLUMNS) if name_of(column) not in truth.important)
    alone = np.zeros_like(codes)
    alone[:, noise] = codes[:, noise]
    np.testing.assert_array_equal(truth.logits(alone), flat)
    auc = write_log(truth, 3000, 1, tmp_path / "log.tsv")
    lines = [line.split("\t") for line in (tmp_path / "log.tsv").read_text().splitlines()]
    assert len(lines) == 3000 and {len(line) for line in lines} == {COLUMNS + 1} and 0.65 < auc < 0.95
    clicks = np.array([int(line[0]) for line in lines])
    written = np.array([line[1:] for line in lines], int)
    chances = 1 / (1 + np.exp(-truth.logits(written)))
    assert abs(clicks.mean() - chances.mean()) < 0.04 and np.corrcoef(clicks, chances)[0, 1] > 0.2


def explained(columns: dict[str, float], pairs: dict[tuple[str, str], tuple[float, float | None]]) -> dict:
    """An explanation with p-values, and of some pairs the lower end of what permuting says."""
    loss = {
        pair: None if low is None else {"log_loss": {"value": low + 1, "interval": [low, low + 2]}}
        for pair, (_, low) in pairs.items()
    }
    return {
        "auc": 0.7,
        "columns": [{"name": name, "p_value": p} for name, p in columns.items()],
        "pairs": [
            {
                "first": a,
                "second": b,
                "interplay": {"p_value": p},
                "interaction": loss[a, b],
                "picked": p,
                "strength": None,
            }
            for (a, b), (p, _) in pairs.items()
        ],
        "rank_correlations": [{"first": "x", "second": "y", "spearman": 0.5}],
    }


def test_findings_are_counted_by_their_p_values():
    truth = plant(0)
    noise = [name_of(column) for column in range(COLUMNS) if name_of(column) not in truth.important]
    pairs = [tuple(sorted(pair)) for pair in truth.pair_names]
    columns = {**dict.fromkeys(truth.important, 0.01), noise[0]: 0.04, noise[1]: 0.06}
    found = judge(truth, explained(columns, {**dict.fromkeys(pairs[:9], (0.01, 0.1)), pairs[9]: (0.2, -0.5)}), 0.05)
    assert found["columns"] == {"planted": IMPORTANT, "found": IMPORTANT, "false": 1}
    assert found["used_columns"] == found["columns"]
    assert found["pairs"] == {"planted": PAIRS, "found": 9, "false": 0}
    assert found["needed_pairs"] == {"planted": PAIRS, "found": 9, "false": 0} and found["permuted_pairs"] == 10
    assert found["missed"] == ["x".join(pairs[9])] and found["planted_among_the_strongest"] == {"picked": PAIRS}

    unlearned = {name: 1.0 for name in truth.important}
    found_by_log = judge(truth, explained(unlearned, {pairs[0]: (0.01, None)}), 0.05)
    assert found_by_log["columns"]["found"] == 2 and found_by_log["used_columns"]["found"] == 0

    others = dict.fromkeys(itertools.islice(itertools.combinations(noise, 2), 2), (0.001, None))
    whole = summary([found, judge(truth, explained(columns, others), 0.05)])
    assert whole["used_columns"]["share_false"] == pytest.approx(2 / 42) and "met" not in whole["used_columns"]
    assert (
        whole["columns"]["share_found"] == 1 and not whole["columns"]["met"]
    )  # the false pairs' columns are false too
    assert whole["pairs"]["share_found"] == 0.45 and not whole["pairs"]["met"]
    assert whole["rank_correlations"]["x and y"] == {"mean": 0.5, "interval": (0.5, 0.5)}


def test_an_interval_is_students():
    # Of 1, 2, 3: the mean 2, the deviation 1, and t(0.975, 2) = 4.303.
    assert interval([1, 2, 3]) == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-4)
    assert interval([1]) is None
