"""What a blocked run says to try."""

import pathlib
from collections.abc import Sequence
from typing import Any

import pytest

from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.config.model import Model
from ctrpipe.pipeline.report.advice import advice

CONFIG = load_config(pathlib.Path(__file__).resolve().parents[2] / "configs" / "demo.yaml")
LR = {"name": "lr", "auc": 0.75}


def tried(
    metric: str,
    kind: str = "absolute",
    auc: float = 0.69,
    baseline: dict[str, Any] | None = None,
    best: int = 5,
    stopped: str = "log_loss did not improve for 2 evaluations",
    calibration: float | None = 1.2,
    config: RunConfig = CONFIG,
    losses: Sequence[float] = (0.5,) * 9,
) -> list[str]:
    """The advice where one gate has failed."""
    passed = {"metric": "log_loss" if metric == "auc" else "auc", "kind": kind, "passed": True}
    gates = [passed, {"metric": metric, "kind": kind, "passed": False}]
    evaluations = [{"validation_log_loss": loss} for loss in losses]
    metrics = {"auc": auc, "calibration": calibration, "baseline": baseline}
    return advice(gates, metrics, {"evaluations": evaluations, "best": best, "stopped": stopped}, config)


@pytest.mark.parametrize("metric", ["auc", "gauc", "auc_minus_log_loss"])
def test_a_model_that_the_baseline_beats_is_too_large_for_its_rows(metric: str) -> None:
    regularise, baseline, bound = tried(metric, baseline=LR)
    assert regularise.startswith("raise training.table_l2") and "larger than these rows can teach" in regularise
    assert baseline.startswith("model.name lr, the baseline, whose AUC is 0.7500 on the same rows")
    assert bound.startswith("another bound in gates")


@pytest.mark.parametrize(("best", "overfits"), [(2, True), (3, False)])
def test_a_model_whose_best_evaluation_came_early_overfits(best: int, overfits: bool) -> None:
    texts = tried("log_loss", auc=0.76, baseline=LR, best=best)
    assert any(f"its best evaluation was number {best + 1} of 9" in text for text in texts) == overfits
    assert not any("baseline" in text for text in texts)


@pytest.mark.parametrize("stopped", ["all 20 epochs done", "the learning rate fell to 0"])
def test_a_model_that_was_still_improving_gets_more_epochs(stopped: str) -> None:
    texts = tried("auc", auc=0.76, baseline=LR, best=8, stopped=stopped)
    assert texts[0].startswith("raise training.epochs")


@pytest.mark.parametrize(("losses", "best"), [([0.641, 0.643], 0), ([0.66, 0.65, 0.64, 0.65], 2)])
def test_a_model_that_got_worse_in_the_last_epochs_is_not_told_to_train_more(losses: list[float], best: int) -> None:
    texts = tried("auc", auc=0.76, baseline=LR, best=best, stopped=f"all {len(losses)} epochs done", losses=losses)
    assert not any("training.epochs" in text for text in texts)


def test_a_model_behind_the_baseline_that_was_still_improving_gets_more_epochs_and_is_not_too_large() -> None:
    falling = [1 - number / 100 for number in range(9)]
    texts = tried("auc", baseline=LR, best=8, stopped="all 9 epochs done", losses=falling)
    assert texts[0].startswith("raise training.epochs") and texts[1].startswith("model.name lr, the baseline")
    assert not any("larger than these rows" in text for text in texts)


@pytest.mark.parametrize(
    ("name", "better"), [("lr", "training.optimizer lbfgs"), ("deepfm", "the model of evaluation.baseline")]
)
def test_a_model_behind_itself_as_baseline_is_not_told_to_become_it(name: str, better: str) -> None:
    config = CONFIG.model_copy(update={"model": Model(name=name)})
    same, bound = tried("auc", baseline={**LR, "name": name}, config=config)
    assert same.startswith(better) and "0.7500" in same and bound.startswith("another bound")


def test_a_linear_model_that_lbfgs_trains_is_not_told_to_take_lbfgs() -> None:
    training = CONFIG.training.model_copy(update={"optimizer": "lbfgs"})
    config = CONFIG.model_copy(update={"model": Model(name="lr"), "training": training})
    assert not any("lbfgs" in text for text in tried("auc", baseline=LR, config=config))
    [bound] = tried("auc", auc=LR["auc"], baseline=LR, config=config)  # the baseline is the same training
    assert bound.startswith("another bound")


def test_without_a_baseline_one_is_proposed() -> None:
    assert any(text.startswith("evaluation.baseline {name: lr}") for text in tried("auc"))


@pytest.mark.parametrize(("calibration", "many"), [(1.2, "more"), (0.8, "fewer")])
def test_calibration_is_about_the_newest_rows(calibration: float, many: str) -> None:
    refit, newer = tried("calibration", calibration=calibration)
    assert refit.startswith("training.refit") and f"expects {many} clicks" in newer
    does_refit = CONFIG.model_copy(update={"training": CONFIG.training.model_copy(update={"refit": True})})
    assert tried("calibration", calibration=calibration, config=does_refit) == [newer]


def test_no_click_among_the_test_rows() -> None:
    assert tried("calibration", calibration=None) == ["more test rows: there is no click among them"]


def test_a_model_worse_than_the_last_one() -> None:
    [text] = tried("auc", kind="change", baseline=LR)
    assert "gates.max_drop" in text


def test_a_blessed_model_needs_no_advice() -> None:
    gates = [{"metric": "auc", "kind": "absolute", "passed": True}]
    assert advice(gates, {"auc": 0.7, "baseline": LR}, {"evaluations": [], "best": None, "stopped": ""}, CONFIG) == []
