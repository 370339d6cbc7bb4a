"""A short version of studies/learning: a model learns the interactions that its equation contains, and no others."""

import pytest

from benchmarks.harness.packed_log import PackedLog
from ctrpipe.models import available
from studies.learning import SETTINGS, TRAINING, make_log, missed, share, trained_auc

SHORT = TRAINING.model_copy(update={"epochs": 6, "patience": 6})


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> dict[str, PackedLog]:
    return {kind: make_log(kind, 20_000, tmp_path_factory.mktemp(kind)) for kind in ("pairs", "triples")}


def measured(logs, kind: str, model: str, tmp_path) -> float:
    """Returns the test AUC, scaled: an AUC of 0.5, which is LR's on both logs, gives 0, and the best possible AUC 1."""
    log = logs[kind]
    assert log.best_auc > 0.8
    return share(trained_auc(model, log, 1, tmp_path, SHORT), 0.5, log.best_auc)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fm", "mlp"])
def test_pairs_are_learned(logs, model, tmp_path):
    assert measured(logs, "pairs", model, tmp_path) >= 0.7


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pairs", "triples"])
def test_lr_learns_no_interactions(logs, kind, tmp_path):
    assert abs(measured(logs, kind, "lr", tmp_path)) <= 0.1


@pytest.mark.slow
def test_fm_learns_no_triples(logs, tmp_path):
    assert abs(measured(logs, "triples", "fm", tmp_path)) <= 0.1


@pytest.mark.large(like="tests/models/test_learning.py::test_pairs_are_learned")
@pytest.mark.slow
@pytest.mark.parametrize("model", ["xdeepfm", "attention_net", "hiformer"])
def test_triples_are_learned(logs, model, tmp_path):
    assert measured(logs, "triples", model, tmp_path) >= 0.4


def test_a_share_outside_its_bound_is_listed():
    models = {"fm": {"share": [0.3, 0.02]}, "hiformer": {"share": [0.2, 0.7]}, "mlp": {"share": [0.0]}}
    assert missed({"triples": {"models": models}}) == ["triples: fm 16.0%, should be <= 10%"]
    assert share(0.75, 0.7, 0.8) == pytest.approx(0.5)


def test_every_model_has_settings():
    asked = ("needs_text", "needs_history", "needs_items", "needs_tasks")
    others = {info.name for info in available() if any(getattr(info, need) for need in asked)}
    assert set(SETTINGS) == {info.name for info in available()} - others
