"""Training of StarSpace: a step follows the gradient of the pair loss, and max_norm limits the length of embeddings."""

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
    """A learner whose embedding table has the same values on every backend."""
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
    """Asserts that a step moves the table by the gradient of the weighted pair loss, computed by finite differences."""
    made = learner(backend, **SHOWS_GRADIENTS)
    before = table_of(made)
    made.fit([BATCH])
    moved = before - table_of(made)
    for row, column in np.ndindex(*before.shape):
        shifted = [before.copy(), before.copy()]
        shifted[0][row, column] += 1e-6
        shifted[1][row, column] -= 1e-6
        losses = [loss_by_loops(table, "cosine", "margin", 3, 0.3, LABELS, WEIGHTS) for table in shifted]
        np.testing.assert_allclose(moved[row, column], (losses[0] - losses[1]) / 2e-6, rtol=1e-2, atol=1e-4)
    assert np.abs(moved).max() > 0.05


def check_max_norm(backend: str, optimizer: str) -> None:
    """Asserts that a step with max_norm equals a step without it, followed by shortening the rows that it changed."""
    settings = {"optimizer": optimizer, "learning_rate": 0.1}
    free, bound = (learner(backend, max_norm, **settings) for max_norm in (0.0, 0.9))
    before = table_of(free)
    for made in (free, bound):
        made.fit([BATCH])
    lengths = np.linalg.norm(table_of(free), axis=1, keepdims=True)
    expected = table_of(free) * np.minimum(1, 0.9 / np.maximum(lengths, 1e-12))
    if optimizer != "adam":  # adam changes all rows
        others = np.setdiff1d(np.arange(len(before)), IDS)
        assert len(others) > 1 and (lengths[others] > 0.9).any()
        expected[others] = before[others]
    used = np.unique(IDS[IDS > 0])
    assert (lengths[used] > 0.9).any() and (lengths[used] < 0.9).any()
    np.testing.assert_allclose(table_of(bound)[1:], expected[1:], rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_step_follows_the_gradient_of_the_pair_loss():
    check_gradient("tensorflow")


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_max_norm_shortens_the_rows_that_a_step_changed(optimizer):
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


def test_only_a_model_with_its_own_loss_receives_the_labels():
    inputs = {"ids": IDS}
    fm = build_network(Model(name="fm", embedding_dim=2), PAIRS, 1)
    assert with_labels(fm, inputs, LABELS, WEIGHTS) is inputs
    pairs = build_network(Model(name="starspace", embedding_dim=2), PAIRS, 1)
    assert set(with_labels(pairs, inputs, LABELS, None)) == {"ids", "label"}
    assert with_labels(pairs, inputs, LABELS, WEIGHTS)["weight"].shape == (6, 1)
