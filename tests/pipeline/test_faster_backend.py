"""What `training.backend: auto` stands for."""

import importlib.util
import json

import keras
import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.harness.settings import MODELS
from common.errors import InputError
from models.registry import model_class
from pipeline.config import Model, Training
from pipeline.training import faster_backend
from pipeline.training.data import packed_reader
from pipeline.training.faster_backend import FASTER_ON_JAX, LEAST, Costs, with_backend
from pipeline.training.train import train
from tests.pipeline.test_training import MAP, MODEL, SETTINGS, write

ENOUGH = 10**9


@pytest.fixture(autouse=True)
def one_cpu(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.delenv("TPU_NAME", raising=False)
    monkeypatch.setattr(keras.distribution, "list_devices", lambda *_: ["cpu:0"])


def backend_of(name: str, rows: int = ENOUGH, **settings) -> str:
    return with_backend(Model(name=name), Training(backend="auto", **settings), rows).backend


def test_jax_is_chosen_where_one_pass_over_the_rows_pays_for_its_start(monkeypatch):
    monkeypatch.setitem(
        FASTER_ON_JAX, "lr", Costs(tensorflow=3.0, jax=1.0, start=10.0)
    )  # 10 s are 5 million times 2 us
    assert backend_of("lr", 5_000_001) == "jax"
    assert backend_of("lr", 5_000_000) == "tensorflow"
    assert backend_of("dcn_v2") == "tensorflow"  # not faster on JAX
    assert backend_of("my_models:MyModel") == "tensorflow"  # never measured


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "lazy_adam"},
        {"precision": "mixed_bfloat16"},
        {"xla": True},
        {"steps_per_execution": 4},
        {"bucket_by_length": True},
        {"distribution": "mirrored"},
        {"distribution": "tpu"},
    ],
)
def test_what_was_not_measured_trains_on_tensorflow(settings):
    assert (backend_of("lr"), backend_of("lr", **settings)) == ("jax", "tensorflow")


def test_several_workers_a_tpu_a_gpu_and_a_machine_without_jax_train_on_tensorflow(monkeypatch):
    cluster = {"cluster": {"worker": ["one:1", "two:1"]}, "task": {"type": "worker", "index": 0}}
    with monkeypatch.context() as patch:
        patch.setenv("TF_CONFIG", json.dumps(cluster))
        assert backend_of("lr") == "tensorflow"
        assert backend_of("lr", distribution="one_device") == "jax"
    with monkeypatch.context() as patch:
        patch.setenv("TPU_NAME", "local")
        assert backend_of("lr") == "tensorflow"
    with monkeypatch.context() as patch:
        patch.setattr(keras.distribution, "list_devices", lambda *_: ["gpu:0"])
        assert backend_of("lr") == "tensorflow"
    with monkeypatch.context() as patch:
        patch.setattr(importlib.util, "find_spec", lambda name: None)
        assert backend_of("lr") == "tensorflow"
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(InputError, match="TF_CONFIG"):
        backend_of("lr")


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_backend_that_is_named_stays(backend):
    training = Training(backend=backend)
    assert with_backend(Model(name="lr"), training, ENOUGH) is training


def test_auto_cannot_be_asked_for_sharded_tables():
    with pytest.raises(ValidationError, match="shard_tables needs backend jax"):
        Training(backend="auto", shard_tables=True)


@pytest.mark.parametrize("name", FASTER_ON_JAX)
def test_the_table_has_models_that_the_benchmark_measures_and_the_reference_names(name):
    costs = FASTER_ON_JAX[name]
    assert name in MODELS and model_class(name)
    assert costs.tensorflow / costs.jax > LEAST and costs.start > 0
    assert f"`{name}`" in (Training.model_fields["backend"].description or "")


@pytest.mark.slow
def test_auto_trains_as_the_backend_that_it_stands_for(tmp_path, monkeypatch, capsys):
    files = [write(tmp_path / "train", 300, 1)], [write(tmp_path / "validation", 200, 2)]
    monkeypatch.setattr(faster_backend, "FASTER_ON_JAX", {"mlp": Costs(2.0, 1.0, 1e-9)})
    found = {}
    for backend in ("jax", "auto"):
        training = Training(**{**SETTINGS, "epochs": 1, "backend": backend})
        result = train(MODEL, training, MAP, *files, 1, tmp_path / backend)
        assert not result.trained_here
        found[backend] = result.learner.predict(packed_reader(files[1], MAP, 256))[1]
    np.testing.assert_array_equal(found["auto"], found["jax"])
    assert capsys.readouterr().err.count("Training on jax (training.backend: auto)") == 1
