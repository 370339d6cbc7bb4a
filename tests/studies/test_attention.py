"""What attention over a history finds: the log as models read it, the shares and bars, and a small training."""

import numpy as np
import pytest

from ctrpipe.common import metrics
from ctrpipe.transforms.generate import HistoryClickModel
from ctrpipe.transforms.generate.history import HistoryRows
from studies import attention
from studies.attention import feature_map, make_log, missed, model, pack, shares


def test_a_row_is_its_items_and_their_categories_behind_their_offsets():
    fields = feature_map(HistoryClickModel(length=4, categories=5))
    item, category = fields.fields[0].offset + 2, fields.fields[1].offset + 2  # after unknown and missing
    drawn = HistoryRows(
        np.array([7, 0]), np.array([[19, 4, -1, -1], [-1, -1, -1, -1]]), np.array([1, 0]), np.array([0.7, 0.1])
    )
    rows = pack(drawn, fields)
    assert rows.ids.tolist() == [
        [item + 7, category + 1, item + 19, item + 4, 0, 0, category + 4, category + 1, 0, 0],
        [item, category, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    assert rows.ids.max() < fields.total_ids


def test_shares_are_counted_from_the_mean_of_the_sum_and_its_own_from_chance():
    found = shares({"sum": [0.55, 0.65], "din": [0.75, 0.90]}, best=0.90)
    assert found["sum"] == pytest.approx([0.125, 0.375])
    assert found["din"] == pytest.approx([0.5, 1.0])


def test_bars_are_of_the_means_over_the_seeds():
    assert missed({"sum": [0.1, 0.48], "din": [0.94, 0.97], "nais": [0.96]}) == []
    assert missed({"sum": [0.30], "din": [0.94, 0.95], "fism": [0.0]}) == [
        "din 94.5%, should be >= 95%",
        "sum 30.0%, should be < 30%",
    ]


@pytest.mark.large(like="tests/studies/test_claims.py::test_a_claim_is_checked_once_and_then_read")
@pytest.mark.slow
def test_attention_finds_what_a_sum_does_not(tmp_path):
    """A small log with few categories takes a minute; the study's own log is larger in both."""
    log = make_log(HistoryClickModel(length=24, categories=10), 12_000, tmp_path)
    training = attention.TRAINING.model_copy(update={"epochs": 6, "batch_size": 256})
    aucs = {}
    for name in ("sum", "din"):
        learner = attention.trained(model(name, 4), training, log, 0, tmp_path / name)
        aucs[name] = metrics.auc(log.labels, attention.predicted(learner, log))
    assert aucs["din"] > aucs["sum"] + 0.1, (aucs, log.best_auc)
