"""What a training begins with: yesterday's weights and moments, row by row."""

import dataclasses
import importlib
import json
import math
import os
import pathlib
import subprocess

import keras
import numpy as np
import pytest

from ctrpipe.common.arrays import write_arrays
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.saved import DESCRIPTION, TrainingState, save_model
from ctrpipe.pipeline.config import Model, Training, WarmStart
from ctrpipe.pipeline.training.job import LEARNERS
from ctrpipe.pipeline.training.warm_start import Start, counts, take
from ctrpipe.transforms.features.table_rows import NONE, SourceRows
from tests.models.small_models import SMALL, batch_of, map_of
from tests.warm_python import python

# Yesterday's vocabulary has a, b and c; today's has new, c and a: rows 3, 4 and 5 in both.
BEFORE = FeatureMap.from_sizes([("shop", "categorical", 3)], ["x"])
TODAY = FeatureMap.from_sizes([("shop", "categorical", 3)], ["x"])
ROWS = SourceRows(np.array([0, 1, 2, NONE, 5, 3]), np.array([0, 1, 1, 1, 1, 1]))
MODEL = Model(name="deepfm", embedding_dim=3, embedding_stddev=0.5, hidden_units=[4])


def learner_of(model: Model, fields: FeatureMap, optimizer: str, seed: int):
    training = Training(optimizer=optimizer, distribution="one_device", learning_rate=0.05)
    return importlib.import_module(LEARNERS[keras.backend.backend()]).make_learner(model, training, fields, seed)


def trained(folder: pathlib.Path, fields: FeatureMap = BEFORE, optimizer: str = "lazy_adam", model: Model = MODEL):
    """A learner after three steps, kept in a folder."""
    learner = learner_of(model, fields, optimizer, seed=1)
    random = np.random.default_rng(2)
    for _ in range(3):
        inputs = {"ids": random.integers(1, 6, (8, 1)).astype("i4"), "dense": random.normal(size=(8, 1)).astype("f4")}
        learner.fit([(inputs, random.integers(0, 2, (8, 1)).astype("f4"))])
    keep(folder, model.name, learner)
    return learner


def keep(folder: pathlib.Path, name: str, learner) -> None:
    folder.mkdir(parents=True)
    write_arrays(folder / "best.npz", learner.state())
    save_model(folder, name, learner.network, state=TrainingState(folder / "best.npz", learner.state_names()))


def named(learner) -> dict[str, np.ndarray]:
    return {name: array for name, array in zip(learner.state_names(), learner.state(), strict=True) if name}


def start(folder: pathlib.Path, same_columns: bool = True) -> Start:
    return Start("yesterday", folder, {"ids": ROWS}, same_columns)


def check_a_known_value_keeps_its_row_and_its_moments(tmp_path, optimizer):
    before = named(trained(tmp_path / "kept", optimizer=optimizer))
    learner = learner_of(MODEL, TODAY, optimizer, seed=7)
    initial = named(learner)
    taken = take(learner, start(tmp_path / "kept"), WarmStart())
    found = named(learner)
    assert taken.optimizer and not taken.left
    moments = ("sum",) if optimizer == "rowwise_adagrad" else ("m", "v")
    for table in ("table.table", "linear.table"):
        np.testing.assert_array_equal(found[table], before[table][[0, 1, 2, 1, 5, 3]])
        for moment in moments:
            values, old = found[f"{table}:{moment}"], before[f"{table}:{moment}"]
            np.testing.assert_array_equal(values[[1, 2, 4, 5]], old[[1, 2, 5, 3]])
            assert old.any() and not values[3].any()
    for name in ("tower.hidden.0.kernel", "tower.hidden.0.kernel:v", "linear_dense.bias", ":iterations"):
        np.testing.assert_array_equal(found[name], before[name])
        assert np.any(found[name] != initial[name])
    assert found[":iterations"] == 3


@pytest.mark.parametrize("optimizer", ["adam", "lazy_adam", "rowwise_adagrad"])
def test_a_known_value_keeps_its_row_and_its_moments(tmp_path, optimizer):
    check_a_known_value_keeps_its_row_and_its_moments(tmp_path, optimizer)


ON_JAX = """
import pathlib, sys
import keras
import tests.pipeline.test_warm_start as t
assert keras.backend.backend() == "jax"
t.check_a_known_value_keeps_its_row_and_its_moments(pathlib.Path(sys.argv[1]), "lazy_adam")
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


def test_a_new_value_may_begin_as_a_random_one_and_the_optimizer_anew(tmp_path):
    before = named(trained(tmp_path / "kept"))
    learner = learner_of(MODEL, TODAY, "lazy_adam", seed=7)
    initial = named(learner)
    taken = take(learner, start(tmp_path / "kept"), WarmStart(new_values="initial", optimizer=False))
    found = named(learner)
    np.testing.assert_array_equal(found["table.table"][3], initial["table.table"][3])
    np.testing.assert_array_equal(found["table.table"][4], before["table.table"][5])
    assert not taken.optimizer and found[":iterations"] == 0 and not found["table.table:m"].any()


def test_another_optimizer_begins_anew(tmp_path):
    trained(tmp_path / "kept", optimizer="lazy_adam")
    learner = learner_of(MODEL, TODAY, "rowwise_adagrad", seed=7)
    taken = take(learner, start(tmp_path / "kept"), WarmStart())
    assert not taken.optimizer and named(learner)[":iterations"] == 0


def test_moments_pass_between_adam_on_everything_and_on_the_rows_of_a_batch(tmp_path):
    before = named(trained(tmp_path / "kept", optimizer="adam"))
    learner = learner_of(MODEL, TODAY, "lazy_adam", seed=7)
    assert take(learner, start(tmp_path / "kept"), WarmStart()).optimizer
    np.testing.assert_array_equal(named(learner)["table.table:m"][4], before["table.table:m"][5])


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_the_share_of_the_negatives_is_corrected_once(tmp_path, share):
    before = trained(tmp_path / "kept")  # its logits are for all rows, whatever share it was trained on
    learner = learner_of(MODEL, dataclasses.replace(TODAY, negative_sampling=share), "lazy_adam", seed=7)
    take(learner, start(tmp_path / "kept"), WarmStart())
    inputs = {"ids": np.array([[5]], "i4"), "dense": np.array([[0.3]], "f4")}  # a, which was 3
    old = np.asarray(before.network({**inputs, "ids": np.array([[3]], "i4")}))
    np.testing.assert_allclose(np.asarray(learner.network(inputs)), old - math.log(share), rtol=1e-5)


def test_other_widths_are_refused_or_left_by_the_setting(tmp_path):
    before = named(trained(tmp_path / "kept"))
    wider = Model(name="deepfm", **{**MODEL.hyperparameters, "hidden_units": [6]})
    learner = learner_of(wider, TODAY, "adam", seed=7)
    with pytest.raises(InputError, match=r"yesterday has another architecture: tower.hidden.0.kernel \(of shape"):
        take(learner, start(tmp_path / "kept"), WarmStart())
    initial = named(learner)
    taken = take(learner, start(tmp_path / "kept"), WarmStart(on_mismatch="take"))
    found = named(learner)
    assert [phrase.partition(" ")[0] for phrase in taken.left] == [
        name for name in initial if name.startswith("tower.") and ":" not in name and name != "tower.logits.bias"
    ]
    np.testing.assert_array_equal(found["tower.hidden.0.kernel"], initial["tower.hidden.0.kernel"])
    np.testing.assert_array_equal(found["table.table"][5], before["table.table"][3])


def test_with_other_columns_weights_of_the_same_shape_stay_random(tmp_path):
    before = named(trained(tmp_path / "kept"))
    learner = learner_of(MODEL, TODAY, "lazy_adam", seed=7)
    initial = named(learner)
    taken = take(learner, start(tmp_path / "kept", same_columns=False), WarmStart(on_mismatch="take"))
    found = named(learner)
    np.testing.assert_array_equal(found["tower.hidden.0.kernel"], initial["tower.hidden.0.kernel"])
    np.testing.assert_array_equal(found["table.table"][4], before["table.table"][5])
    np.testing.assert_array_equal(found["linear_dense.bias"], before["linear_dense.bias"])  # the click rate
    assert any(phrase.startswith("tower.hidden.0.kernel (of other columns)") for phrase in taken.left)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nais", "numbert", "cascading_deepfm"])
def test_every_weight_of_a_model_with_further_tables_is_taken(tmp_path, name):
    fields = map_of(name)
    model = Model(name=name, **SMALL[name])
    before = learner_of(model, fields, "adam", seed=1)
    before.load_weights([w + 1 if w.dtype == np.float32 else w for w in before.weights()])
    keep(tmp_path / "kept", name, before)
    rows = {"ids": np.arange(fields.total_ids), "positions": np.arange(5), "tokens": np.arange(130)}
    same = {kind: SourceRows(each, each) for kind, each in rows.items() if kind != "tokens" or fields.text}
    learner = learner_of(model, fields, "adam", seed=2)
    taken = take(learner, Start("yesterday", tmp_path / "kept", same, True), WarmStart())
    assert not taken.left
    inputs = batch_of(name)
    np.testing.assert_array_equal(np.asarray(learner.network(inputs)), np.asarray(before.network(inputs)))


def test_a_start_is_read_as_it_was_written(tmp_path):
    written = start(tmp_path / "kept", same_columns=False)
    written.save(tmp_path / "start")
    read = Start.load(tmp_path / "start")
    assert (read.name, read.kept, read.same_columns) == (written.name, written.kept, written.same_columns)
    np.testing.assert_array_equal(read.rows["ids"].same, ROWS.same)
    np.testing.assert_array_equal(read.rows["ids"].unknown, ROWS.unknown)


def test_known_new_and_gone_ids_are_counted():
    assert counts(TODAY, BEFORE, ROWS) == {"shop": {"known": 4, "new": 1, "gone": 1}}


def test_a_parent_of_newer_code_is_one_line(tmp_path):
    trained(tmp_path / "kept")
    described = json.loads((tmp_path / "kept" / DESCRIPTION).read_text())
    (tmp_path / "kept" / DESCRIPTION).write_text(json.dumps({**described, "format": 2}))
    with pytest.raises(InputError, match="kept by a newer ctrpipe than this"):
        take(learner_of(MODEL, TODAY, "adam", seed=7), start(tmp_path / "kept"), WarmStart())
