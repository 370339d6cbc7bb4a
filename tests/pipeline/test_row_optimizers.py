"""Updates by every optimizer against numpy loops over rows, on TensorFlow and on JAX."""

import json
import os
import pathlib
import subprocess
from typing import Any

import numpy as np
import pytest

from ctrpipe.models import FeatureMap
from ctrpipe.pipeline.config import Model, Training
from tests.warm_python import python

FIELDS = [("a", "categorical", 8, 1, "feature"), ("b", "categorical", 20, 1, "feature")]
MAP = FeatureMap.from_sizes([*FIELDS, ("m", "multivalent", 9, 3, "feature")], ["x"])
# A logistic regression's gradients can be written down: (p - y) / rows for each id, times x for the dense weight.
MODEL = Model(name="lr", l2=0.1)
RATE, ROWS = 0.05, 16
OTHER_ADAM = {"adam_beta_1": 0.6, "adam_beta_2": 0.95, "adam_epsilon": 0.01}


def batches(count: int) -> list:
    """Random ids: some come several times in a batch, some in no batch, some in some batches."""
    random = np.random.default_rng(4)
    found = []
    for _ in range(count):
        ids = [random.zipf(1.5, (ROWS, field.slots)) % (field.size // 2) + field.offset for field in MAP.fields]
        ids[2][:, 1:] *= random.random((ROWS, 2)) < 0.5  # padding
        inputs = {"ids": np.concatenate(ids, axis=1).astype(np.int32)}
        inputs["dense"] = random.normal(size=(ROWS, 1)).astype(np.float32)
        found.append((inputs, (random.random((ROWS, 1)) < 0.4).astype(np.float32)))
    return found


def expected(training: Training, steps: int) -> tuple[np.ndarray, float, float]:
    """The table, the dense weight and the bias after `steps`, one row at a time, in double precision."""
    b1, b2, epsilon = training.adam_beta_1, training.adam_beta_2, training.adam_epsilon
    clip = training.gradient_clip_norm
    table, kernel, bias = np.zeros(MAP.total_ids), 0.0, 0.0
    m, v, s = np.zeros(MAP.total_ids), np.zeros(MAP.total_ids), np.zeros(MAP.total_ids)
    dense_m, dense_v = np.zeros(2), np.zeros(2)
    for step, (inputs, labels) in enumerate(batches(steps), 1):
        gradient: dict[int, float] = {}
        dense = np.zeros(2)
        for ids, x, y in zip(inputs["ids"], inputs["dense"][:, 0], labels[:, 0], strict=True):
            p = 1 / (1 + np.exp(-(sum(table[i] for i in ids if i) + kernel * x + bias)))
            dense += np.array([x, 1.0]) * (p - y) / ROWS
            slots = iter(ids)
            for field in MAP.fields:
                present = [i for i in (next(slots) for _ in range(field.slots)) if i]
                weight = sum(table[i] for i in present)  # of the field: what the penalty is on
                for i in present:
                    gradient[i] = gradient.get(i, 0.0) + (p - y) / ROWS + 0.1 * weight / ROWS
        norm = np.sqrt(sum(g**2 for g in gradient.values()) + (dense**2).sum())
        factor = min(1.0, clip / norm) if clip else 1.0
        corrected = RATE * np.sqrt(1 - b2**step) / (1 - b1**step)
        rows = range(MAP.total_ids) if training.optimizer == "adam" else list(gradient)
        for row in rows:
            g = factor * gradient.get(row, 0.0)
            if training.optimizer != "rowwise_adagrad":
                m[row], v[row] = b1 * m[row] + (1 - b1) * g, b2 * v[row] + (1 - b2) * g * g
                table[row] -= corrected * m[row] / (np.sqrt(v[row]) + epsilon)
            else:
                s[row] += g * g
                table[row] -= RATE * g / (np.sqrt(s[row]) + 1e-10)
        dense *= factor
        dense_m, dense_v = b1 * dense_m + (1 - b1) * dense, b2 * dense_v + (1 - b2) * dense**2
        moved = corrected * dense_m / (np.sqrt(dense_v) + epsilon)
        kernel, bias = kernel - moved[0], bias - moved[1]
    return table, kernel, bias


def make_learner(*job: Any) -> Any:
    """A learner of this process's backend."""
    if os.environ.get("KERAS_BACKEND") == "jax":
        from ctrpipe.pipeline.training import jax_learner as backend
    else:
        from ctrpipe.pipeline.training import tensorflow_learner as backend
    return backend.make_learner(*job)


def settings(optimizer: str, clip: float | None, **adam: float) -> Training:
    return Training(optimizer=optimizer, gradient_clip_norm=clip, learning_rate=RATE, **adam)


def check(weights: list, training: Training, steps: int) -> None:
    """Weights of the logistic regression by their shapes."""
    table, kernel, bias = expected(training, steps)
    found = {np.shape(weight): np.asarray(weight) for weight in weights}
    np.testing.assert_allclose(found[(MAP.total_ids, 1)][:, 0], table, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose([found[(1, 1)][0, 0], found[(1,)][0]], [kernel, bias], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("clip", "adam"),
    [
        (None, {}),
        (0.05, OTHER_ADAM),
        pytest.param(0.05, {}, marks=pytest.mark.large),
        pytest.param(None, OTHER_ADAM, marks=pytest.mark.large),
    ],
)
@pytest.mark.parametrize("optimizer", ["adam", "lazy_adam", "rowwise_adagrad"])
def test_weights_follow_the_documented_update(optimizer, clip, adam):
    training = settings(optimizer, clip, **adam)
    learner = make_learner(MODEL, training, MAP, 1)
    learner.fit(batches(6))
    check(learner.weights(), training, 6)


@pytest.mark.parametrize("optimizer", ["lazy_adam", "rowwise_adagrad"])
def test_rows_outside_the_batch_keep_their_values(optimizer):
    learner = make_learner(Model(name="fm", embedding_dim=3, embedding_stddev=0.1), settings(optimizer, 1.0), MAP, 1)
    learner.fit(batches(1))
    before = learner.network.table.table.numpy()
    [(inputs, labels)] = batches(1)
    inputs["ids"][:] = inputs["ids"][:1]
    learner.fit([(inputs, labels)])
    changed = np.any(learner.network.table.table.numpy() != before, axis=1)
    assert set(np.flatnonzero(changed)) == set(inputs["ids"][0]) - {0}


@pytest.mark.slow
def test_lazy_adam_is_adam_where_every_row_is_in_every_batch():
    model = Model(name="deepfm", embedding_dim=3, embedding_stddev=0.1, hidden_units=[5])
    rows = max(field.size for field in MAP.fields)
    columns = [np.arange(rows) % field.size + field.offset for field in MAP.fields for _ in range(field.slots)]
    ids = np.stack(columns, axis=1).astype(np.int32)
    random = np.random.default_rng(6)
    data = []
    for _ in range(5):
        dense, labels = random.normal(size=(rows, 1)), random.random((rows, 1)) < 0.4
        data.append(({"ids": ids, "dense": dense.astype(np.float32)}, labels.astype(np.float32)))
    tables = []
    for optimizer in ("adam", "lazy_adam"):
        learner = make_learner(model, settings(optimizer, 0.1), MAP, 1)
        learner.fit(data)
        tables.append(learner.network.table.table.numpy())
    np.testing.assert_allclose(tables[0], tables[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_resumed_learner_goes_on_as_if_it_had_not_stopped():
    model, training = Model(name="fm", embedding_dim=3, embedding_stddev=0.1), settings("lazy_adam", 1.0)
    whole, first, second = (make_learner(model, training, MAP, seed) for seed in (1, 1, 2))
    data = batches(6)
    whole.fit(data)
    first.fit(data[:3])
    second.load_state(first.state())
    second.fit(data[3:])
    for left, right in zip(whole.weights(), second.weights(), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-6)


ON_JAX = """
import json, sys
from ctrpipe.common.libraries import import_keras
import_keras()
import tests.pipeline.test_row_optimizers as t
import keras
assert keras.backend.backend() == "jax"
for optimizer, clips in json.loads(sys.argv[1]).items():
    for clip in clips:
        training = t.settings(optimizer, clip, **(t.OTHER_ADAM if clip else {}))
        learner = t.make_learner(t.MODEL, training, t.MAP, 1)
        learner.fit(t.batches(3))
        learner.predict(t.batches(1))
        other = t.make_learner(t.MODEL, training, t.MAP, 2)
        other.load_state(learner.state())
        other.fit(t.batches(6)[3:])
        t.check(other.weights(), training, 6)
print("equal")
"""
# By optimizer, with which norms of the gradient; the settings of Adam are others where it is clipped. JAX compiles each
# pair in a second.
PAIRS = {"adam": [0.05], "lazy_adam": [0.05], "rowwise_adagrad": [None]}
OTHER_PAIRS = {"adam": [None], "lazy_adam": [None], "rowwise_adagrad": [0.05]}


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [PAIRS, pytest.param(OTHER_PAIRS, marks=pytest.mark.large)], ids=["some", "others"])
def test_jax_does_the_same(pairs):
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(root)}
    command = [*python("jax"), "-c", ON_JAX, json.dumps(pairs)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
    assert run.returncode == 0 and run.stdout.split()[-1] == "equal", run.stderr[-2000:]
