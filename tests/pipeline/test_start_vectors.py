"""Embeddings that start from pretrained vectors: the first step, a parent's values, and a baseline without any."""

import dataclasses
import os
import pathlib
import subprocess

import numpy as np
import pytest

from ctrpipe.common.arrays import write_arrays
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.registry import create
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.initial_weights import initialise
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.warm_start import Start
from ctrpipe.transforms.features.table_rows import NONE, SourceRows
from tests.pipeline.gradient_steps import SHOWS_GRADIENTS
from tests.pipeline.test_warm_start import keep
from tests.warm_python import python

MAP = FeatureMap.from_sizes([("user", "categorical", 2), ("item", "categorical", 4)])  # user 1 to 4, item 5 to 10
VECTORS = np.array([[1, -2, 0.5], [3, 0.25, -1]], np.float32)
IDS = [7, 9]


def job(folder: pathlib.Path, dim: int, name: str = "fm", **changes) -> TrainingJob:
    axes = np.eye(3, dtype=np.float32)[:, [1, 0, 2]]
    file = folder / "vectors.npz"
    write_arrays(file, [np.array(["item"]), np.array(IDS) - 5, VECTORS, axes])
    options = {"embedding_dim": dim, "embedding_stddev": 0.1} if name != "lr" else {}
    shown = {"optimizer": "lazy_adam", "gradient_clip_norm": None, "distribution": "one_device", **SHOWS_GRADIENTS}
    training = Training(**shown, **changes)
    return TrainingJob(Model(name=name, **options), training, MAP, [], [], 1, start_vectors=str(file))


def begun(asked: TrainingJob, folder: pathlib.Path):
    learner = asked.learner()
    initialise(asked, learner, folder, None, lambda *_: pytest.fail("no stage comes before"))
    return learner


def table_of(learner) -> np.ndarray:
    return np.asarray(dict(zip(learner.state_names(), learner.state(), strict=True))["table.table"])


def check_the_first_step_moves_the_vectors_by_their_gradients(folder: pathlib.Path) -> None:
    """A factorisation machine's gradient is written down: (p - y) / rows times the other embedding."""
    asked = job(folder, 4)
    learner = begun(asked, folder)
    before = table_of(learner).astype(np.float64)
    np.testing.assert_array_equal(before[IDS, :3], VECTORS)
    fresh = table_of(asked.learner())
    untouched = [row for row in range(MAP.total_ids) if row not in IDS]
    np.testing.assert_array_equal(before[untouched], fresh[untouched])
    np.testing.assert_array_equal(before[IDS, 3], fresh[IDS, 3])  # beyond the vectors' length
    rows, labels = np.array([[3, 7], [4, 9], [3, 8]]), np.array([1, 0, 1])
    expected = before.copy()
    for (user, item), label in zip(rows, labels, strict=True):
        p = 1 / (1 + np.exp(-before[user] @ before[item]))
        expected[item] -= (p - label) / 3 * before[user]
        expected[user] -= (p - label) / 3 * before[item]
    learner.fit([({"ids": rows.astype(np.int32)}, labels[:, None].astype(np.float32))])
    np.testing.assert_allclose(table_of(learner), expected, rtol=2e-5, atol=1e-7)
    assert np.abs(table_of(learner)[IDS] - before[IDS]).max() > 0.01


def test_the_first_step_moves_the_vectors_by_their_gradients(tmp_path):
    check_the_first_step_moves_the_vectors_by_their_gradients(tmp_path)


ON_JAX = """
import pathlib, sys
import keras
import tests.pipeline.test_start_vectors as t
assert keras.backend.backend() == "jax"
t.check_the_first_step_moves_the_vectors_by_their_gradients(pathlib.Path(sys.argv[1]))
print("equal")
"""


@pytest.mark.large(like="tests/pipeline/test_row_optimizers.py::test_jax_does_the_same")
@pytest.mark.slow
def test_jax_does_the_same(tmp_path):
    root = pathlib.Path(__file__).parents[2]
    environment = {**os.environ, "KERAS_BACKEND": "jax", "PYTHONPATH": str(root)}
    run = subprocess.run(
        [*python("jax"), "-c", ON_JAX, str(tmp_path)], capture_output=True, text=True, cwd=root, env=environment
    )
    assert run.returncode == 0 and run.stdout.split()[-1] == "equal", run.stderr[-2000:]


def test_a_narrower_embedding_starts_from_the_first_axes(tmp_path):
    table = table_of(begun(job(tmp_path, 2), tmp_path))
    np.testing.assert_array_equal(table[IDS], VECTORS[:, [1, 0]])


def test_a_value_that_the_parent_knows_keeps_its_row_and_a_new_one_its_vector(tmp_path):
    parent = job(tmp_path, 3).learner()
    keep(tmp_path / "kept", "fm", parent)
    same = np.arange(MAP.total_ids)
    same[9] = NONE
    unknown = np.array([0, 1, 1, 1, 1, *[5] * 6])
    Start("yesterday", tmp_path / "kept", {"ids": SourceRows(same, unknown)}, True).save(tmp_path / "start")
    asked = job(tmp_path, 3, warm_start={"parent": "yesterday"})
    table = table_of(begun(dataclasses.replace(asked, start=str(tmp_path / "start"), seed=7), tmp_path))
    known = [row for row in range(MAP.total_ids) if row != 9]
    np.testing.assert_array_equal(table[known], table_of(parent)[known])
    np.testing.assert_array_equal(table[9], VECTORS[1])


def test_a_baseline_without_embeddings_stays_as_it_is(tmp_path):
    asked = job(tmp_path, 3, "lr")
    np.testing.assert_array_equal(begun(asked, tmp_path).weights()[0], asked.learner().weights()[0])


def test_the_rows_of_a_history_start_from_the_vectors_in_both_tables_of_fism(tmp_path):
    fields = [("item", "categorical", 4), ("items", "sequence", 4, 3, "feature", "mean", "item")]
    model = create("fism", FeatureMap.from_sizes(fields), embedding_dim=3)
    assert [table.name for table in model.value_tables()] == ["embedding", "history_embedding"]
