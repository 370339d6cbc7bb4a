"""The training loop on small transformed files."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from models import FeatureMap
from pipeline.config import Model, Training
from pipeline.training.data import packed_dataset
from pipeline.training.tensorflow_learner import make_strategy
from pipeline.training.train import train

MAP = FeatureMap.from_sizes([("a", "categorical", 8, 1, "feature"), ("b", "categorical", 8, 1, "feature")])
MODEL = Model(name="mlp", embedding_dim=4, hidden_units=[8], dropout=0.2, embedding_stddev=0.1)
SETTINGS = {"batch_size": 64, "epochs": 4, "learning_rate": 0.01, "evaluations_per_epoch": 2, "patience": 8}


def write(path: pathlib.Path, rows: int, seed: int) -> str:
    """Clicks where the two fields agree in parity: nothing for a linear model, all for an MLP."""
    random = np.random.default_rng(seed)
    with tf.io.TFRecordWriter(str(path), "GZIP") as writer:
        for _ in range(rows):
            a, b, noise = random.integers(0, 8), random.integers(0, 8), random.random()
            label = float((a + b) % 2 == 0) if noise > 0.1 else float(noise > 0.05)
            example = tf.train.Example()
            example.features.feature["ids"].int64_list.value.extend([3 + a, 13 + b])
            example.features.feature["label"].float_list.value.append(label)
            writer.write(example.SerializeToString())
    return str(path)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    return [write(folder / "train", 1500, 1)], [write(folder / "validation", 600, 2)]


def run(files, work, seed=1, **changes):
    result = train(MODEL, Training(**{**SETTINGS, **changes}), MAP, *files, seed, work)
    return result, result.learner.predict(packed_dataset(files[1], MAP, 256))[1]


def test_it_learns_an_interaction_and_keeps_the_best_weights(files, tmp_path):
    result, probabilities = run(files, tmp_path, epochs=15)
    best = result.progress.evaluations[result.progress.best]
    assert best["validation_auc"] > 0.9
    labels = result.learner.predict(packed_dataset(files[1], MAP, 256))[0]
    found = -np.mean(np.log(np.where(labels > 0.5, probabilities, 1 - probabilities)))
    assert found == pytest.approx(best["validation_log_loss"], abs=1e-5)
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_the_same_seed_gives_the_same_model(files, tmp_path):
    first, second = (run(files, tmp_path / name)[1] for name in "ab")
    np.testing.assert_array_equal(first, second)
    assert np.abs(first - run(files, tmp_path / "c", seed=2)[1]).max() > 1e-4


class Killed(Exception):
    pass


def test_a_killed_training_goes_on_where_it_was(files, tmp_path):
    whole, expected = run(files, tmp_path / "whole")

    def kill(numbers):
        if numbers["step"] > 60:
            raise Killed

    with pytest.raises(Killed):
        train(MODEL, Training(**SETTINGS), MAP, *files, 1, tmp_path / "killed", kill)
    resumed, probabilities = run(files, tmp_path / "killed")
    np.testing.assert_allclose(probabilities, expected, atol=1e-6)
    assert len(resumed.progress.evaluations) == len(whole.progress.evaluations)


def test_plateau_cuts_the_rate_and_patience_stops(files, tmp_path):
    result, _ = run(files, tmp_path, epochs=40, patience=4, plateau={"factor": 0.1, "patience": 2})
    rates = [row["learning_rate"] for row in result.progress.evaluations]
    assert rates[0] == 0.01 and rates[-1] == pytest.approx(0.001)
    assert "did not improve for 4" in result.progress.stopped
    assert len(rates) == result.progress.best + 5


def test_refit_learns_from_the_validation_rows(files, tmp_path):
    _, plain = run(files, tmp_path / "plain")
    _, refitted = run(files, tmp_path / "refit", refit=True)
    assert np.abs(plain - refitted).max() > 1e-4


TWO_DEVICES = """
import json, sys, pathlib
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tests.pipeline.test_training import MAP, MODEL, SETTINGS
from pipeline.config import Model, Training
from pipeline.training.tensorflow_learner import make_strategy
from pipeline.training.train import train
model = Model(**{**MODEL.model_dump(), "dropout": 0.0})
files, work = json.loads(sys.argv[1]), pathlib.Path(sys.argv[2])
losses = []
for distribution in ("mirrored", "one_device"):
    assert make_strategy(distribution).num_replicas_in_sync == (2 if distribution == "mirrored" else 1)
    # 1,536 of 1,500 rows would leave an uneven last batch, whose mean two devices weigh differently
    training = Training(**{**SETTINGS, "batch_size": 60, "evaluations_per_epoch": 1, "distribution": distribution})
    result = train(model, training, MAP, *files, 1, work / distribution)
    losses.append([row["validation_log_loss"] for row in result.progress.evaluations])
print(json.dumps(losses))
"""


def test_two_devices_train_the_same_model_as_one(files, tmp_path):
    root = pathlib.Path(__file__).parents[2]
    command = [sys.executable, "-c", TWO_DEVICES, json.dumps(files), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=root, env={**os.environ, "PYTHONPATH": str(root)})
    assert run.returncode == 0, run.stderr[-2000:]
    two, one = json.loads(run.stdout.splitlines()[-1])
    np.testing.assert_allclose(two, one, rtol=1e-4)


def test_auto_is_one_device_where_there_is_one():
    assert make_strategy("auto").num_replicas_in_sync == 1
