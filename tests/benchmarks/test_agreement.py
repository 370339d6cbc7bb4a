"""`python -m benchmarks.agreement`: what differs between two devices is found, and a side that fails is a reason."""

import math

import numpy as np
import pytest

from benchmarks import agreement
from benchmarks.agreement import compare, compare_all, is_met
from benchmarks.harness.ours_server import Job, Server, Spec
from benchmarks.harness.settings import Shape
from benchmarks.peers.line_process import ProcessError

SHAPE = Shape(fields=3, ids=20, dim=4, batch=16)


class Side:
    """Answers as `Ours` does, with fixed numbers."""

    def __init__(self, logits, trained, loss=0.5):
        self.reply = {"logits": logits, "trained_logits": trained, "loss": loss}

    def answers(self, model, hyperparameters, shape, steps, rows, exact):
        self.exact = exact
        if model == "fm":
            raise ProcessError("first line\nout of memory")
        return self.reply

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def test_the_largest_difference_of_either_sign_is_reported():
    here, there = Side([[1.0], [2.0]], [[0.0], [3.0]]), Side([[1.5], [1.75]], [[0.0], [4.0]], 0.25)
    result = compare((here, there), "lr", SHAPE, steps=1, rows=2, exact=True)
    assert here.exact and there.exact
    assert result == {"logit_difference": 0.5, "trained_logit_difference": 1.0, "losses": [0.5, 0.25]}


def test_a_model_that_fails_is_a_reason_and_the_others_are_compared(monkeypatch):
    monkeypatch.setattr(agreement, "Ours", lambda *_, device: Side([[0.0 if device == "cpu" else 1.0]], [[0.0]]))
    results = compare_all(("lr", "fm", "mlp"), "jax", "gpu", SHAPE, 1, 1, workers=2)
    assert [result["model"] for result in results] == ["lr", "fm", "mlp"]
    assert [result.get("logit_difference") for result in results] == [1.0, None, 1.0]
    assert "out of memory" in results[1]["reason"] and "\n" not in results[1]["reason"]


@pytest.mark.parametrize(
    ("changes", "met"),
    [({}, True), ({"logit_difference": 0.1}, False), ({"logit_difference": math.nan}, False)]
    + [({"losses": [0.5, math.nan]}, False), ({"reason": "failed"}, False)],
)
def test_a_bar_is_missed_by_a_difference_a_failure_or_a_loss_that_is_not_finite(changes, met):
    result = {"logit_difference": 0.01, "trained_logit_difference": 9.0, "losses": [0.5, 0.5]} | changes
    assert is_met(result, 0.05) is met


@pytest.mark.slow
def test_answers_are_log_odds_of_new_weights_before_and_after_the_steps():
    options = {"model": "lr", "hyperparameters": {}, "sizes": SHAPE.sizes, "batch": SHAPE.batch, "batches": 2}
    job = Job(Spec(**options))
    server = Server()
    asked = {"cmd": "answers", "steps": 3, "rows": 5, **options}
    first = server.answer({**asked, "exact": False})
    probabilities = job.learner.predict([job._rows(5)])[1]
    np.testing.assert_allclose(1 / (1 + np.exp(-np.array(first["logits"]))), probabilities, rtol=1e-6)
    job.run(3)
    trained = job.learner.predict([job._rows(5)])[1]
    np.testing.assert_allclose(1 / (1 + np.exp(-np.array(first["trained_logits"]))), trained, rtol=1e-5)
    assert np.abs(np.subtract(first["logits"], first["trained_logits"])).max() > 1e-5
    again = server.answer({**asked, "exact": True})
    assert again["logits"] == first["logits"]  # nothing of the first training is left, and a CPU has no TF32
