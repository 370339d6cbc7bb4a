"""What the end of a run says of a model that is worse than the base rate, or that was not trained to its end."""

import pytest

from ctrpipe.pipeline.report.notes import notes
from ctrpipe.pipeline.training.convergence import has_converged


def history(*losses: float, stopped: str = "all 3 epochs done") -> dict:
    return {"evaluations": [{"validation_log_loss": loss} for loss in losses], "best": 0, "stopped": stopped}


@pytest.mark.parametrize(
    ("losses", "stopped", "falling"),
    [
        ((0.6, 0.5, 0.45), "all 3 epochs done", True),
        ((0.6, 0.45, 0.46), "all 3 epochs done", False),  # the best came before
        ((0.6, 0.5, 0.49999), "all 3 epochs done", False),  # a fall of 2e-5 is none
        ((0.6, 0.5, 0.4999), "all 3 epochs done", True),
        ((0.6,), "all 1 epochs done", False),  # one evaluation shows no direction
        ((0.6, 0.5, 0.45), "log_loss did not improve for 2 evaluations", False),
    ],
)
def test_a_loss_that_still_falls_when_the_epochs_end_is_said(losses, stopped, falling):
    found = notes({"rig": 0.1}, history(*losses, stopped=stopped))
    assert len(found) == falling
    if falling:
        assert f"from 0.5000 to {losses[-1]:.4f}" in found[0] and "raise training.epochs" in found[0]


def test_trees_that_end_too_early_have_their_own_key():
    [found] = notes(
        {"rig": 0.1}, history(0.6, 0.5, 0.45, stopped="all 300 trees; variance of the regression's prior 1")
    )
    assert "when the last tree was grown, from 0.5000 to 0.4500" in found and "raise model.trees" in found


@pytest.mark.parametrize(("rig", "worse"), [(-0.0312, True), (0.0, False), (0.2, False), (None, False)])
def test_a_model_worse_than_the_base_rate_is_said(rig, worse):
    found = notes({"rig": rig}, history(0.5, 0.6))
    assert [text.startswith("the model is worse than the base rate: its RIG is -0.0312") for text in found] == [
        True
    ] * worse


@pytest.mark.parametrize(
    ("auc", "rig", "said"), [(0.9991, 0.88, True), (0.985, 0.2, False), (0.8, 0.6, False), (None, None, False)]
)
def test_a_model_that_is_too_good_is_said(auc, rig, said):
    found = notes({"rig": rig, "auc": auc}, history(0.5, 0.6))
    assert len(found) == said
    if said:
        assert found[0].startswith("the model is almost perfect on the test rows, with an AUC of 0.9991")


def test_a_training_that_a_number_ended_is_said():
    figure = "lr: the training loss is not a finite number in epoch 2 (step 8)"
    found = notes({"rig": 0.1}, {**history(0.5, stopped="a number was not finite"), "not_finite": figure})
    assert found == [f"{figure}; the best weights before are kept"]


@pytest.mark.parametrize(
    ("losses", "stopped", "converged"),
    [
        ((0.6, 0.5, 0.45), "all 3 epochs done", False),
        ((0.6, 0.45, 0.46), "all 3 epochs done", True),
        ((0.6,), "all 1 epochs done", False),
        ((0.6, 0.5, 0.45), "log_loss did not improve for 2 evaluations", True),
        ((0.6, 0.5, 0.5), "L-BFGS converged; variance of the prior 0.1", True),
        ((0.6, 0.5, 0.5), "all iterations of L-BFGS done; variance of the prior 0.1", False),
    ],
)
def test_a_side_of_a_verdict_has_converged_if_more_epochs_would_not_help(losses, stopped, converged):
    assert has_converged(history(*losses, stopped=stopped)) is converged
