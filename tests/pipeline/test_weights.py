"""Training on weighted rows: a row of weight 2 is the row twice."""

import sys
import types

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.models import FeatureMap
from ctrpipe.pipeline.config import Calibration, Model, Training
from ctrpipe.pipeline.training.boosting import learn_trees, load_lightgbm
from ctrpipe.pipeline.training.calibrate import fit_calibration
from ctrpipe.pipeline.training.data import base_rates, packed_reader
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from ctrpipe.transforms.features.packed_files import PackedWriter

MAP = FeatureMap.from_sizes([("a", "categorical", 8), ("b", "categorical", 8)])
ROWS = 300


def weighted_rows(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Ids, labels and weights; the weights of a's first values turn what the labels say."""
    random = np.random.default_rng(seed)
    a, b = random.integers(0, 8, ROWS), random.integers(0, 8, ROWS)
    labels = random.random(ROWS) < np.where(a < 4, 0.7, 0.3)
    weights = np.where(labels == (a < 4), random.integers(0, 2, ROWS), random.integers(2, 5, ROWS)) + labels
    offsets = [field.offset for field in MAP.fields]
    return np.stack([offsets[0] + 2 + a, offsets[1] + 2 + b], axis=1).astype(np.int32), labels, weights


def write(path, ids: np.ndarray, labels: np.ndarray, weights: np.ndarray | None) -> list[str]:
    rows = {"ids": ids, "label": labels[:, None].astype(np.float32)}
    if weights is not None:
        rows["weight"] = weights[:, None].astype(np.float32)
    with PackedWriter(path) as writer:
        writer.write(rows)
    return [str(path)]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """By kind, training and validation rows: weighted, or each as often as its weight says."""
    folder = tmp_path_factory.mktemp("weighted")
    found = {"weighted": [], "repeated": []}
    for seed in (1, 2):
        ids, labels, weights = weighted_rows(seed)
        found["weighted"].append(write(folder / f"weighted-{seed}.parquet", ids, labels, weights))
        ids, labels = (np.repeat(values, weights, axis=0) for values in (ids, labels))
        found["repeated"].append(write(folder / f"repeated-{seed}.parquet", ids, labels, None))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "optimizer", "name"),
    [
        ("tensorflow", "adam", "lr"),
        ("tensorflow", "lazy_adam", "fm"),
        pytest.param("jax", "lazy_adam", "fm", marks=pytest.mark.large),
    ],
)
def test_a_weight_of_two_is_the_row_twice_in_the_loss_and_the_validation(files, tmp_path, backend, optimizer, name):
    settings = {"batch_size": 4 * ROWS, "epochs": 8, "learning_rate": 0.05, "monitor": "auc", "patience": 8}
    training = Training(**settings, optimizer=optimizer, backend=backend, start_at_base_rate=True)
    model = Model(name=name, **({} if name == "lr" else {"embedding_dim": 4}))
    results = {kind: train(TrainingJob(model, training, MAP, *own, 1), tmp_path / kind) for kind, own in files.items()}
    one, other = (results[kind].history["evaluations"] for kind in ("weighted", "repeated"))
    assert len(one) == 8 and one[-1]["train_loss"] < one[0]["train_loss"] - 0.02
    for found, expected in zip(one, other, strict=True):
        for key in ("train_loss", "validation_log_loss"):
            assert found[key] == pytest.approx(expected[key], abs=2e-5)
        # Rows of equal ids tie but for their logits' last bits.
        assert found["validation_auc"] == pytest.approx(expected["validation_auc"], abs=3e-3)
    found, expected = (
        results[kind].learner.predict(packed_reader(files["weighted"][1], MAP, 64))[1]
        for kind in ("weighted", "repeated")
    )
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_the_base_rate_is_weighted(files):
    np.testing.assert_allclose(base_rates(files["weighted"][0]), base_rates(files["repeated"][0]))
    _, labels, _ = weighted_rows(1)
    assert abs(base_rates(files["weighted"][0])[0] - labels.mean()) > 0.01


@pytest.mark.parametrize("method", ["isotonic", "platt", "histogram"])
def test_the_calibration_is_weighted(files, method):
    def model(inputs, training):
        return tf.cast(inputs["ids"][:, :1] - 6, tf.float32) / 4

    calibrations = [
        fit_calibration(Calibration(method=method, by=["b"], bins=4), MAP, files[kind][1], None, model)
        for kind in ("weighted", "repeated")
    ]
    ids, _, _ = weighted_rows(3)
    logits = ((ids[:, :1] - 6) / 4).astype(np.float32)
    found, expected = (each.probabilities(logits, {"ids": ids}).numpy() for each in calibrations)
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert np.ptp(found) > 0.01


def test_trees_are_weighted():
    pytest.importorskip("lightgbm", exc_type=OSError)  # where there is no libgomp.so.1
    kept = {}
    ensemble = types.SimpleNamespace(
        trees=1, nodes=3, leaves=2, depth=1, assign=lambda *arrays: kept.update(value=arrays[4], feature=arrays[0])
    )
    network = types.SimpleNamespace(
        trees=ensemble, boost=lambda inputs: (inputs["values"], np.zeros((len(inputs["values"]), 1), np.float32))
    )
    values = np.repeat([0.0, 1.0], 200).astype(np.float32)[:, None]
    labels = np.tile([0.0, 1.0], 200)[:, None]  # no value says anything, but by the weights
    weights = np.where(labels == values, 1.0, 0.01)

    def leaves(**inputs) -> np.ndarray:
        learn_trees(network, [({"values": values, **inputs}, labels)], None, 1, 1)
        return kept["value"][0]

    low, high = leaves(weight=weights)[1:]
    assert low < -0.05 and high > 0.05
    np.testing.assert_allclose(leaves(), 0, atol=1e-6)
    # 200 rows of rate 0.1 are 20 clicks.
    labels = np.where(values == 1, 0.9, 0.1)
    of_rates = leaves()[1:]
    labels = np.tile(np.arange(10) < 1, 20), np.tile(np.arange(10) < 9, 20)
    labels = np.concatenate(labels).astype(np.float64)[:, None]
    np.testing.assert_allclose(of_rates, leaves()[1:], rtol=1e-4)


def test_a_system_without_openmp_is_told_what_lightgbm_needs(monkeypatch):
    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name == "lightgbm":
                raise OSError("libgomp.so.1: cannot open shared object file: No such file or directory")

    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    with pytest.raises(
        InputError, match=r"^LightGBM, .* \(libgomp\.so\.1: .*\); install OpenMP's library, libgomp1 on"
    ):
        load_lightgbm()
