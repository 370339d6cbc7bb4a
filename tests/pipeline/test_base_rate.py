"""The constant that gives a trained model the base rate of the rows that it has learnt."""

import dataclasses

import numpy as np
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import WEIGHT
from ctrpipe.pipeline.config import Model, Training, check_config
from ctrpipe.pipeline.training.base_rate import shift_to_base_rate
from ctrpipe.pipeline.training.data import packed_reader
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from tests.pipeline.test_training import MAP, run
from tests.pipeline.test_training import files as files  # a fixture


class FixedLearner:
    """A learner that answers what a batch's input holds."""

    def predict(self, batches):
        ((inputs, labels),) = batches
        assert WEIGHT not in inputs
        return labels, inputs["answer"][:, None].astype(np.float32)


def batch(answers, labels, weights=None):
    inputs = {"answer": np.array(answers), **({} if weights is None else {WEIGHT: np.array(weights)[:, None]})}
    return inputs, np.array(labels, np.float32)[:, None]


def shifted(probabilities: np.ndarray, shift: float) -> np.ndarray:
    return 1 / (1 + (1 / probabilities - 1) * np.exp(-shift))


def test_the_shifted_probabilities_have_the_rows_share_of_clicks() -> None:
    random = np.random.default_rng(3)
    answers, labels = random.beta(0.4, 4, 5000), random.random(5000) < 0.07
    rows = [batch(answers[part], labels[part]) for part in (slice(0, 3000), slice(3000, 5000))]
    shift = shift_to_base_rate(FixedLearner(), rows)
    assert shifted(answers, shift).mean() == pytest.approx(labels.mean(), rel=1e-5)
    assert abs(shift) > 0.1


def test_rows_count_by_their_weights() -> None:
    answers, labels, weights = np.array([0.2, 0.5, 0.5]), np.array([0, 1, 0]), np.array([1.0, 3.0, 2.0])
    shift = shift_to_base_rate(FixedLearner(), [batch(answers, labels, weights)])
    assert (weights * shifted(answers, shift)).sum() == pytest.approx(3.0, rel=1e-5)


def test_an_answer_of_0_or_1_is_no_infinite_logit() -> None:
    shift = shift_to_base_rate(FixedLearner(), [batch([0.0, 1.0, 0.5, 0.5], [0, 1, 1, 1])])
    assert shift > 1 and shifted(np.array([0.5]), shift)[0] == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("label", [0, 1])
def test_rows_of_one_class_are_one_line(label) -> None:
    with pytest.raises(InputError, match="^training.end_at_base_rate: the training rows have one class only"):
        shift_to_base_rate(FixedLearner(), [batch([0.2, 0.4], [label, label])])


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{}, {"refit": True}, pytest.param({"backend": "jax"}, marks=pytest.mark.large)],
    ids=["plain", "refit", "jax"],
)
def test_a_training_ends_at_the_base_rate_of_what_it_has_learnt(changes, files, tmp_path) -> None:
    rows = {"learnt": [*files[0], *(files[1] if "refit" in changes else [])]}
    misses = []
    for ends in (False, True):
        result, _ = run(files, tmp_path / str(ends), epochs=1, end_at_base_rate=ends, **changes)
        labels, probabilities = result.learner.predict(packed_reader(rows["learnt"], MAP, 256))
        misses.append(abs(probabilities.mean() / labels.mean() - 1))
        assert (result.weights_file is None) == (ends or "refit" in changes)
    assert misses[1] < 1e-5 < 1e-3 < misses[0]


@pytest.mark.slow
def test_the_share_of_the_negatives_comes_on_top(files, tmp_path) -> None:
    settings = Training(epochs=1, end_at_base_rate=True)
    model = Model(name="lr")
    sampled = dataclasses.replace(MAP, negative_sampling=0.2)
    (plain, corrected) = (
        train(
            TrainingJob(model, settings, fields, *files, 1), tmp_path / str(fields.negative_sampling)
        ).learner.predict(packed_reader(files[0], MAP, 256))[1]
        for fields in (MAP, sampled)
    )
    np.testing.assert_allclose(corrected / (1 - corrected), 0.2 * plain / (1 - plain), rtol=1e-4)


def test_a_model_without_a_bias_is_told_before_it_is_trained(files, tmp_path) -> None:
    model = Model(name="afm", embedding_dim=4, use_linear=False)
    with pytest.raises(InputError, match="^training.end_at_base_rate: AFM has no bias"):
        train(TrainingJob(model, Training(end_at_base_rate=True), MAP, *files, 1), tmp_path)


def test_rows_as_they_arrive_have_no_final_rate() -> None:
    with pytest.raises(ValueError, match="share of clicks is not final; remove end_at_base_rate"):
        Training(end_at_base_rate=True, fake_negative_weighting=True)


def test_several_labels_are_one_line() -> None:
    config = {
        "name": "two",
        "data": {"columns": ["a", "b", "c"], "labels": {"ctr": "a", "cvr": "b"}},
        "features": [{"kind": "categorical", "columns": ["c"]}],
        "model": {"name": "lr"},
        "training": {"end_at_base_rate": True},
    }
    with pytest.raises(InputError, match="training.end_at_base_rate needs a single label") as error:
        check_config(config, (), "config")
    assert "\n" not in str(error.value)
