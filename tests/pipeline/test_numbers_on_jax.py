"""Labels and embeddings of numbers on JAX: the steps of TensorFlow from the same weights, and what they learn."""

import dataclasses
import os
import pathlib
import subprocess

import numpy as np
import pytest

from ctrpipe.models import FeatureMap
from ctrpipe.models.base.feature_map import NumberTask
from ctrpipe.pipeline.config import Model, Training
from tests.models.jax_drawing import draw_zeros
from tests.warm_python import python

pytestmark = pytest.mark.slow

ROWS, BATCH = 4096, 128
NUMBERS = (
    NumberTask("seconds", "count", 0.0, 40.0),
    NumberTask("value", "mean", -10.0, 4.0),
    NumberTask("delay", "median", 100.0, 20.0),
)
MAP = dataclasses.replace(
    FeatureMap.from_sizes([("a", "categorical", 11, 1, "feature")], ["x", "z"]),
    tasks=("ctr", "seconds", "value", "delay"),
    number_tasks=NUMBERS,
    embedded=("x", "z"),
)
WAYS = {"periodic": {"number_scale": 0.5}, "autodis": {"number_bins": 8, "number_scale": 0.1}}


def batches() -> list:
    """All labels depend on z alone, which 1 in 8 rows lack; a third of the rows and the first batch lack seconds."""
    random = np.random.default_rng(6)
    z = random.random(ROWS)
    missing = random.random(ROWS) < 1 / 8
    clicks = random.random(ROWS) < np.where(missing, 0.5, 0.5 + 0.4 * np.sin(2 * np.pi * z))
    seconds = np.where(random.random(ROWS) < 1 / 3, np.nan, random.poisson(np.where(missing, 10, 20 + 60 * z**2)))
    seconds[:BATCH] = np.nan
    value = np.where(missing, 0, -14 + 8 * np.abs(2 * z - 1)) + random.normal(size=ROWS)
    delay = np.where(missing, 50, 80 + 40 * z) + random.standard_t(2, ROWS)
    labels = np.stack([clicks, seconds, value, delay], axis=1).astype(np.float32)
    dense = np.stack([random.random(ROWS), np.where(missing, -1, z)], axis=1).astype(np.float32)
    inputs = {"ids": (1 + random.integers(0, 11, (ROWS, 1))).astype(np.int32), "dense": dense}
    return [
        ({name: values[start : start + BATCH] for name, values in inputs.items()}, labels[start : start + BATCH])
        for start in range(0, ROWS, BATCH)
    ]


def learner(way: str):
    interaction = {"name": "mlp", "hidden_units": [16]}
    model = {"name": "mmoe", "embedding_dim": 8, "experts": 2, "expert_units": 8, "interaction": interaction}
    model |= {"hidden_units": [16], "number_embedding": way, "embedding_stddev": 0.1, **WAYS[way]}
    settings = {"optimizer": "adam", "learning_rate": 0.01}
    if os.environ.get("KERAS_BACKEND") == "jax":
        from ctrpipe.pipeline.training.jax_learner import make_learner

        return make_learner(Model(**model), Training(backend="jax", **settings), MAP, 1)
    from ctrpipe.pipeline.training.tensorflow_learner import make_learner as make_on_tensorflow

    return make_on_tensorflow(Model(**model), Training(**settings), MAP, 1)


def steps(folder: pathlib.Path, way: str) -> dict[str, np.ndarray]:
    """What a training gives from the weights in a folder: its first losses, the weights after, the last predictions."""
    with np.load(folder / f"{way}.npz") as kept:
        begun = [kept[name] for name in kept.files]
    made, data = learner(way), batches()
    made.load_weights(begun)
    losses = [made.fit([batch]) for batch in data[:4]]
    early = made.weights()
    for _ in range(6):
        made.fit(data)
    _, predicted = made.predict(data)
    return {"losses": np.array(losses), "predicted": predicted, **{f"w{n}": one for n, one in enumerate(early)}}


def on_jax(folder: str, way: str) -> None:
    draw_zeros()  # the weights are those of TensorFlow
    np.savez(pathlib.Path(folder) / f"{way}_jax.npz", **steps(pathlib.Path(folder), way))


@pytest.mark.parametrize("way", ["periodic", pytest.param("autodis", marks=pytest.mark.large)])
def test_jax_takes_the_steps_of_tensorflow_and_learns_numbers_from_numbers(tmp_path, way):
    np.savez(tmp_path / f"{way}.npz", *learner(way).weights())
    script = "from ctrpipe.common.libraries import import_keras; import_keras()\n"
    script += f"import tests.pipeline.test_numbers_on_jax as module; module.on_jax({str(tmp_path)!r}, {way!r})"
    root = pathlib.Path(__file__).parents[2]
    environment = os.environ | {"KERAS_BACKEND": "jax", "PYTHONPATH": str(root)}
    run = subprocess.run([*python("jax"), "-c", script], capture_output=True, text=True, cwd=root, env=environment)
    assert run.returncode == 0, run.stderr[-2000:]
    data = batches()
    z, labels = (np.concatenate(parts) for parts in ([one["dense"][:, 1] for one, _ in data], [y for _, y in data]))
    known = z >= 0
    expected = {
        0: np.where(known, 0.5 + 0.4 * np.sin(2 * np.pi * z), 0.5),
        1: np.where(known, 20 + 60 * z**2, 10),
        2: np.where(known, -14 + 8 * np.abs(2 * z - 1), 0),
        3: np.where(known, 80 + 40 * z, 50),
    }
    here = steps(tmp_path, way)
    with np.load(tmp_path / f"{way}_jax.npz") as there:
        np.testing.assert_allclose(there["losses"], here["losses"], rtol=1e-4)
        for name in here:
            if name.startswith("w"):
                np.testing.assert_allclose(there[name], here[name], rtol=1e-2, atol=1e-3)
        for found in (here["predicted"], there["predicted"]):
            for task, true in expected.items():
                apart = np.sqrt(np.mean((found[:, task] - true) ** 2)) / true.std()
                assert apart < 0.35, (task, apart)
    assert np.isnan(labels[:, 1]).any()
