"""The papers' claims: the logs that they are tested on, the verdicts, and a tiny run."""

import numpy as np
import pytest

from benchmarks.harness.verdicts import CANNOT_BE_TOLD, DOES_NOT_HOLD, HOLDS
from ctrpipe.common import metrics
from ctrpipe.pipeline.compare.rows_and_seeds import Difference
from studies import claims
from studies.claims import CLAIMS, TRUTHS, draw

BY_NAME = {claim.name: claim for claim in CLAIMS}


def difference(low: float, high: float) -> Difference:
    return Difference((low + high) / 2, (5, 5), 0.0, 0.0, 0.0, None, None, None, (low, high))


@pytest.mark.parametrize(
    ("claim", "interval", "verdict"),
    [
        ("top_k", (0.0001, 0.01), HOLDS),
        ("top_k", (-0.0001, 0.01), CANNOT_BE_TOLD),
        ("top_k", (-0.01, -0.0001), DOES_NOT_HOLD),
        ("low_rank", (-0.0009, 0.01), HOLDS),
        ("low_rank", (-0.0011, 0.01), CANNOT_BE_TOLD),
        ("low_rank", (-0.0011, -0.0009), CANNOT_BE_TOLD),
        ("low_rank", (-0.01, -0.0011), DOES_NOT_HOLD),
    ],
)
def test_a_claim_holds_where_the_interval_says_so(claim, interval, verdict):
    assert BY_NAME[claim].verdict(difference(*interval), 1.0) == verdict


@pytest.mark.parametrize(("largest", "verdict"), [(1e-6, HOLDS), (1e-4, DOES_NOT_HOLD)])
def test_models_are_the_same_where_their_probabilities_are(largest, verdict):
    assert BY_NAME["pruning"].verdict(difference(-0.1, 0.1), largest) == verdict


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_both_sides_differ_in_what_the_claim_is_about_alone(claim):
    first, second = ({"name": model.name, **model.hyperparameters} for _, model in claim.models)
    differ = {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}
    about = {
        "top_k": {"top_k"},
        "vector_wise": {"name", "layers", "maps"},
        "heterogeneous": {"name"},
        "composite": {"name"},  # ranks that are none are no ranks
        "low_rank": {"qk_rank", "v_rank"},
        "pruning": {"prune"},
    }
    assert differ == about[claim.name]


@pytest.mark.parametrize("name", TRUTHS)
def test_columns_show_nothing_alone_and_the_truth_is_calibrated(name):
    truth = TRUTHS[name]
    rows = draw(truth, 100_000, seed=1)
    assert rows.codes.shape == (100_000, truth.columns) and rows.codes.max() == truth.values - 1
    assert rows.labels.mean() == pytest.approx(rows.probabilities.mean(), abs=0.005)
    logits = np.log(rows.probabilities / (1 - rows.probabilities))
    assert logits.std() == pytest.approx(2.0, abs=0.02)
    for column in rows.codes.T:
        means = np.bincount(column, logits) / np.bincount(column)
        assert means.std() < 0.15  # of about 3,000 to 10,000 rows each
    assert 0.8 < metrics.auc(rows.labels, rows.probabilities) < 0.9


def test_rows_differ_by_seed_and_effects_do_not():
    first, second = (draw(TRUTHS["by_pair"], 50_000, seed) for seed in (1, 2))
    assert not np.array_equal(first.codes, second.codes)
    keys = [rows.codes @ 10 ** np.arange(6) for rows in (first, second)]
    _, of_first, of_second = np.intersect1d(*keys, return_indices=True)
    assert len(of_first) > 1000
    np.testing.assert_allclose(first.probabilities[of_first], second.probabilities[of_second])


@pytest.mark.slow
def test_a_claim_is_checked_once_and_then_read(tmp_path, monkeypatch):
    training = claims.TRAINING.model_copy(update={"epochs": 1})
    log = claims.make_log("by_pair", 2000, tmp_path)
    checked = claims.check(BY_NAME["pruning"], training, log, 2, tmp_path)
    assert set(checked["auc"]) == {"LR", "all tokens", "pruned"}
    np.testing.assert_allclose(checked["auc"]["all tokens"], checked["auc"]["pruned"], atol=1e-6)
    assert checked["verdict"] == HOLDS and len(checked["auc"]["LR"]) == 2

    assert len(list((tmp_path / "work").iterdir())) == 2 * 2  # LR and all tokens: pruned has the latter's trainings

    def trains(*_: object) -> None:
        raise AssertionError("it trains again")

    monkeypatch.setattr(claims, "trained", trains)
    assert claims.check(BY_NAME["pruning"], training, log, 2, tmp_path) == checked
    with pytest.raises(AssertionError, match="trains again"):
        claims.check(BY_NAME["heterogeneous"], training, log, 2, tmp_path)
