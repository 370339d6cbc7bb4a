"""The average of a training's weights: its equation, and the trainings that measure, keep and serve it."""

import numpy as np
import pytest

from ctrpipe.common.arrays import read_arrays
from ctrpipe.pipeline.config import Training
from ctrpipe.pipeline.training.averaging import WeightAverage
from ctrpipe.pipeline.training.data import packed_reader
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from tests.pipeline.test_training import MAP, MODEL, SETTINGS, Killed, run, write


class FakeLearner:
    """A learner of one weight, a seed, and nothing to learn."""

    is_chief = True

    def __init__(self) -> None:
        self.values = [np.zeros(2, np.float32), np.zeros(1, np.int64)]

    def weights(self) -> list[np.ndarray]:
        return self.values

    def load_weights(self, weights: list[np.ndarray]) -> None:
        self.values = weights

    def from_chief(self, arrays: list[np.ndarray]) -> list[np.ndarray]:
        return arrays


def moved(learner: FakeLearner, number: int) -> None:
    learner.values = [np.array([number, number**2], np.float32), np.array([7 * number])]


def averages(span: int, count: int) -> list[list[np.ndarray]]:
    learner, average = FakeLearner(), WeightAverage(span)
    found = []
    for number in range(1, count + 1):
        moved(learner, number)
        average.add(learner, number)
        found.append(average.of(learner.weights()))
    return found


def test_the_first_ones_have_the_plain_mean_and_a_random_generators_state_is_the_newest() -> None:
    for number, (weights, seed) in enumerate(averages(span=4, count=4), 1):
        seen = np.arange(1, number + 1)
        np.testing.assert_allclose(weights, [seen.mean(), (seen**2).mean()], rtol=1e-6)
        assert seed.tolist() == [7 * number]


def test_a_later_one_weighs_as_much_as_one_of_the_span() -> None:
    before, after = averages(span=4, count=6)[-2:]
    np.testing.assert_allclose(after[0], 0.75 * before[0] + 0.25 * np.array([6, 36]), rtol=1e-6)


def test_a_span_of_one_is_the_weights_themselves() -> None:
    learner, average = FakeLearner(), WeightAverage(1)
    average.add(learner, 1)
    weights = learner.weights()
    with average.loaded(learner):
        assert average.of(weights) is weights is learner.weights()


def test_the_learner_trains_on_from_its_own_weights_with_the_chiefs_seeds(monkeypatch) -> None:
    learner, average = FakeLearner(), WeightAverage(3)
    for number in (1, 2):
        moved(learner, number)
        average.add(learner, number)
    # Another process than the chief, which moves each seed that it loads, has another one.
    monkeypatch.setattr(learner, "from_chief", lambda arrays: [arrays[0], np.array([5])])
    with average.loaded(learner):
        np.testing.assert_allclose(learner.values[0], [1.5, 2.5])
    np.testing.assert_array_equal(learner.values[0], [2, 4])
    assert learner.values[1].tolist() == [5]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    folder = tmp_path_factory.mktemp("data")
    return [write(folder / "train", 1500, 1)], [write(folder / "validation", 600, 2)]


def mean_by_equation(weights: list[list[np.ndarray]], span: int) -> list[np.ndarray]:
    """Returns the average in float64, as a weighted sum of all: each evaluation's weight is written out."""
    shares = [1.0]
    for number in range(2, len(weights) + 1):
        share = 1 / min(number, span)
        shares = [(1 - share) * each for each in shares] + [share]
    assert sum(shares) == pytest.approx(1)
    return [
        sum(share * each.astype(np.float64) for share, each in zip(shares, values, strict=True))
        for values in zip(*weights, strict=True)
    ]


@pytest.mark.slow
def test_a_training_keeps_and_a_refit_returns_the_average_of_their_evaluations(files, tmp_path, monkeypatch) -> None:
    """`seen` has the weights at the training's evaluations, then at the refit's."""
    seen: list[list[np.ndarray]] = []
    add = WeightAverage.add

    def spying(self: WeightAverage, learner, number: int) -> None:
        seen.append([value.copy() for value in learner.weights()])
        add(self, learner, number)

    monkeypatch.setattr(WeightAverage, "add", spying)
    model = MODEL.model_copy(update={"dropout": 0.0})
    settings = {**SETTINGS, "epochs": 3, "averaged_evaluations": 3}
    for refit in (False, True):
        seen.clear()
        work = tmp_path / str(refit)
        result = train(TrainingJob(model, Training(**settings, refit=refit), MAP, *files, 1), work)
        best = result.progress.best
        assert best is not None and best >= 3  # an average of more than its span
        if refit:
            assert len(seen) == 6 + best + 1
        expected = mean_by_equation(seen[6:] if refit else seen[: best + 1], 3)
        floating = [index for index, value in enumerate(seen[0]) if value.dtype == np.float32]
        assert result.state is not None
        for found in (result.learner.weights(), read_arrays(result.state.path)[: len(expected)]):
            for index in floating:
                np.testing.assert_allclose(found[index], expected[index], atol=1e-6)
        if not refit:  # what was measured is what is returned
            labels, probabilities = result.learner.predict(packed_reader(files[1], MAP, 256))
            loss = -np.mean(np.log(np.where(labels > 0.5, probabilities, 1 - probabilities)))
            assert loss == pytest.approx(result.progress.evaluations[best]["validation_log_loss"], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tensorflow", pytest.param("jax", marks=pytest.mark.large)])
def test_the_average_changes_what_is_measured_and_not_what_is_learnt(backend, files, tmp_path) -> None:
    changes = {"backend": backend, "plateau": None, "epochs": 2}
    (plain, _), (averaged, probabilities) = (
        run(files, tmp_path / str(span), **changes, averaged_evaluations=span) for span in (1, 4)
    )
    losses, measured = (
        [[row[key] for row in each.progress.evaluations] for each in (plain, averaged)]
        for key in ("train_loss", "validation_log_loss")
    )
    np.testing.assert_array_equal(*losses)
    assert measured[0][0] == measured[1][0]  # of one evaluation the mean is that one
    assert np.abs(np.subtract(*measured))[1:].min() > 1e-4
    labels = averaged.learner.predict(packed_reader(files[1], MAP, 256))[0]
    loss = -np.mean(np.log(np.where(labels > 0.5, probabilities, 1 - probabilities)))
    assert loss == pytest.approx(min(measured[1]), abs=1e-5)


@pytest.mark.slow
def test_a_killed_training_goes_on_with_the_average_it_had(files, tmp_path) -> None:
    changes = {"averaged_evaluations": 5}
    _, expected = run(files, tmp_path / "whole", **changes)

    def kill(numbers: dict) -> None:
        if numbers["step"] > 60:
            raise Killed

    with pytest.raises(Killed):
        train(TrainingJob(MODEL, Training(**SETTINGS, **changes), MAP, *files, 1), tmp_path / "killed", kill)
    _, probabilities = run(files, tmp_path / "killed", **changes)
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
