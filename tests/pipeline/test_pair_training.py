"""Training of StarSpace: its loss has the labels and weights of a batch, and rows stay within the largest length."""

import os
import pathlib
import subprocess

import numpy as np
import pytest

from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.learner import with_labels
from ctrpipe.pipeline.training.network import build_network
from tests.models.starspace_pairs import IDS, LABELS, PAIRS, WEIGHTS, loss_by_loops
from tests.pipeline.gradient_steps import SHOWS_GRADIENTS
from tests.warm_python import python

OPTIMIZERS = ("adam", "lazy_adam", "rowwise_adagrad")
BATCH = ({"ids": IDS, "weight": WEIGHTS[:, None].astype(np.float32)}, LABELS[:, None].astype(np.float32))


def learner(backend: str, max_norm: float = 0.0, **training):
    """A learner of one model, whatever the backend: its table has the same values."""
    if backend == "jax":
        from ctrpipe.pipeline.training.jax_learner import make_learner
    else:
        from ctrpipe.pipeline.training.tensorflow_learner import make_learner
    options = {"embedding_dim": 4, "margin": 0.3, "negatives": 3, "max_norm": max_norm}
    settings = {"backend": backend, "distribution": "one_device", "gradient_clip_norm": None, **training}
    made = make_learner(Model(name="starspace", **options), Training(**settings), PAIRS, 1)
    random = np.random.default_rng(2)
    table = random.normal(scale=0.6, size=made.network.table.table.shape).astype(np.float32)
    made.load_weights([table if np.shape(weight) == table.shape else weight for weight in made.weights()])
    return made


def table_of(made) -> np.ndarray:
    return next(np.asarray(weight, np.float64) for weight in made.weights() if np.ndim(weight) == 2)


def check_gradient(backend: str) -> None:
    """Fails unless a step follows the gradient of the loss of the pairs, by labels and weights, and of nothing else."""
    made = learner(backend, **SHOWS_GRADIENTS)
    before = table_of(made)
    made.fit([BATCH])
    moved = before - table_of(made)
    for row, column in np.ndindex(*before.shape):
        ends = [before.copy(), before.copy()]
        ends[0][row, column] += 1e-6
        ends[1][row, column] -= 1e-6
        losses = [loss_by_loops(end, "cosine", "margin", 3, 0.3, LABELS, WEIGHTS) for end in ends]
        np.testing.assert_allclose(moved[row, column], (losses[0] - losses[1]) / 2e-6, rtol=1e-2, atol=1e-4)
    assert np.abs(moved).max() > 0.05


def check_max_norm(backend: str, optimizer: str) -> None:
    """Fails unless a step is one without a largest length, and then the rows that it changed are shortened."""
    settings = {"optimizer": optimizer, "learning_rate": 0.1}
    free, bound = (learner(backend, max_norm, **settings) for max_norm in (0.0, 0.9))
    before = table_of(free)
    for made in (free, bound):
        made.fit([BATCH])
    lengths = np.linalg.norm(table_of(free), axis=1, keepdims=True)
    expected = table_of(free) * np.minimum(1, 0.9 / np.maximum(lengths, 1e-12))
    if optimizer != "adam":  # which touches all rows
        others = np.setdiff1d(np.arange(len(before)), IDS)
        assert len(others) > 1 and (lengths[others] > 0.9).any()
        expected[others] = before[others]
    used = np.unique(IDS[IDS > 0])
    assert (lengths[used] > 0.9).any() and (lengths[used] < 0.9).any()
    np.testing.assert_allclose(table_of(bound)[1:], expected[1:], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_step_follows_the_loss_of_the_pairs():
    check_gradient("tensorflow")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_rows_stay_within_the_largest_length(optimizer):
    check_max_norm("tensorflow", optimizer)


@pytest.mark.large(like="tests/pipeline/test_row_optimizers.py::test_jax_does_the_same")
@pytest.mark.slow
def test_jax_does_the_same():
    root = pathlib.Path(__file__).parents[2]
    calls = ["t.check_gradient('jax')", *(f"t.check_max_norm('jax', {name!r})" for name in OPTIMIZERS)]
    script = "; ".join(["import tests.pipeline.test_pair_training as t", *calls, "print('equal')"])
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(root)}
    run = subprocess.run([*python("jax"), "-c", script], capture_output=True, text=True, cwd=root, env=environment)
    assert run.returncode == 0 and run.stdout.split()[-1] == "equal", run.stderr[-2000:]


def test_only_a_model_with_a_loss_of_its_own_reads_the_labels():
    inputs = {"ids": IDS}
    fm = build_network(Model(name="fm", embedding_dim=2), PAIRS, 1)
    assert with_labels(fm, inputs, LABELS, WEIGHTS) is inputs
    pairs = build_network(Model(name="starspace", embedding_dim=2), PAIRS, 1)
    assert set(with_labels(pairs, inputs, LABELS, None)) == {"ids", "label"}
    assert with_labels(pairs, inputs, LABELS, WEIGHTS)["weight"].shape == (6, 1)
