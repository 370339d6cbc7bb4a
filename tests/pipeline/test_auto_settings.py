"""What `auto` stands for in `training.backend` and `training.precision`."""

import json

import keras
import numpy as np
import pytest
from pydantic import ValidationError

from benchmarks.harness.settings import MODELS, TEXTS
from ctrpipe.common import extras, processes
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import model_class
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training import auto_settings
from ctrpipe.pipeline.training.auto_settings import (
    FASTER_IN_BFLOAT16,
    FASTER_ON_JAX,
    LEAST_OF_JAX,
    BackendCosts,
    settled,
    slow_precision,
)
from ctrpipe.pipeline.training.data import packed_reader
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.train import train
from tests.pipeline.test_training import MAP, MODEL, SETTINGS, write

ENOUGH = 10**9
WITHOUT, WITH = "flags\t\t: fpu avx512f avx512_vnni\n", "flags\t\t: fpu avx512f avx512_bf16\n"


@pytest.fixture(autouse=True)
def one_cpu(monkeypatch, tmp_path):
    """A machine of one CPU that multiplies bfloat16."""
    for name in ("TF_CONFIG", "TPU_NAME", "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(keras.distribution, "list_devices", lambda *_: ["cpu:0"])
    monkeypatch.setattr(processes, "CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(WITH)


def backend_of(name: str, rows: int = ENOUGH, **settings) -> str:
    return settled(Model(name=name), Training(backend="auto", **settings), rows).backend


def precision_of(name: str, **settings) -> str:
    return settled(Model(name=name), Training(precision="auto", **settings), ENOUGH).precision


def test_jax_is_chosen_where_one_pass_over_the_rows_pays_for_its_start(monkeypatch):
    monkeypatch.setitem(
        FASTER_ON_JAX, "lr", BackendCosts(tensorflow=3.0, jax=1.0, start=10.0)
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


def test_bfloat16_is_chosen_for_a_model_that_is_faster_in_it():
    assert precision_of("dcn_v2") == "mixed_bfloat16"
    assert precision_of("dcn_v2", optimizer="lazy_adam") == "mixed_bfloat16"
    assert precision_of("fm") == "float32"
    assert precision_of("my_models:MyModel") == "float32"


@pytest.mark.parametrize("settings", [{"backend": "jax"}, {"xla": True}, {"distribution": "mirrored"}])
def test_what_was_not_measured_trains_in_float32(settings):
    assert (precision_of("mlp"), precision_of("mlp", **settings)) == ("mixed_bfloat16", "float32")


@pytest.mark.parametrize("variable", [("TF_ENABLE_ONEDNN_OPTS", "0"), ("ONEDNN_MAX_CPU_ISA", "AVX2")])
def test_without_onednns_bfloat16_training_is_in_float32(variable, monkeypatch):
    assert precision_of("mlp") == "mixed_bfloat16"
    monkeypatch.setenv(*variable)
    assert precision_of("mlp") == "float32"


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [(WITHOUT, "float32"), (None, "float32"), (WITH.replace("avx512_bf16", "amx_bf16"), "mixed_bfloat16")],
)
def test_only_a_cpu_that_multiplies_bfloat16_trains_in_it(cpuinfo, expected, tmp_path):
    (tmp_path / "cpuinfo").unlink()
    if cpuinfo:
        (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert precision_of("mlp") == expected


@pytest.mark.parametrize(
    ("cpuinfo", "settings", "slow"),
    [
        (WITHOUT, {"precision": "mixed_bfloat16"}, True),
        (WITH, {"precision": "mixed_bfloat16"}, False),
        (WITHOUT, {"precision": "float32"}, False),
        (WITHOUT, {"precision": "mixed_bfloat16", "distribution": "tpu"}, False),
    ],
)
def test_a_precision_that_makes_this_cpu_slower_is_said(cpuinfo, settings, slow, tmp_path):
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    line = slow_precision(Training(**settings))
    assert bool(line) == slow and ("slower than float32 here" in line) == slow


def test_a_model_that_jax_trains_does_so_in_float32(monkeypatch):
    monkeypatch.setitem(FASTER_ON_JAX, "mlp", BackendCosts(tensorflow=3.0, jax=1.0, start=1.0))
    found = settled(Model(name="mlp"), Training(backend="auto", precision="auto"), ENOUGH)
    assert (found.backend, found.precision) == ("jax", "float32")


def test_several_workers_a_tpu_and_a_gpu_have_neither(monkeypatch):
    cluster = {"cluster": {"worker": ["one:1", "two:1"]}, "task": {"type": "worker", "index": 0}}
    neither, both = ("tensorflow", "float32"), ("jax", "mixed_bfloat16")
    with monkeypatch.context() as patch:
        patch.setenv("TF_CONFIG", json.dumps(cluster))
        assert (backend_of("lr"), precision_of("mlp")) == neither
        assert (backend_of("lr", distribution="one_device"), precision_of("mlp", distribution="one_device")) == both
    with monkeypatch.context() as patch:
        patch.setenv("TPU_NAME", "local")
        assert (backend_of("lr"), precision_of("mlp")) == neither
    with monkeypatch.context() as patch:
        patch.setattr(keras.distribution, "list_devices", lambda *_: ["gpu:0"])
        assert (backend_of("lr"), precision_of("mlp")) == neither
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(InputError, match="TF_CONFIG"):
        backend_of("lr")


def test_a_machine_without_jax_trains_on_tensorflow(monkeypatch):
    monkeypatch.setattr(extras, "is_installed", lambda module: False)
    assert backend_of("lr") == "tensorflow"


@pytest.mark.parametrize("named", [{"backend": "tensorflow"}, {"backend": "jax"}, {"precision": "mixed_float16"}])
def test_what_is_named_stays(named):
    training = Training(**named)
    assert settled(Model(name="lr"), training, ENOUGH) is training


def test_auto_cannot_be_asked_for_sharded_tables():
    with pytest.raises(ValidationError, match="shard_tables needs backend jax"):
        Training(backend="auto", shard_tables=True)


@pytest.mark.parametrize("name", FASTER_ON_JAX)
def test_the_table_has_models_that_the_benchmark_measures_and_the_reference_names(name):
    costs = FASTER_ON_JAX[name]
    assert name in MODELS and model_class(name)
    assert costs.tensorflow / costs.jax > LEAST_OF_JAX and costs.start > 0
    assert f"`{name}`" in (Training.model_fields["backend"].description or "")


def test_the_models_of_bfloat16_are_measured_ones():
    assert {*MODELS, *TEXTS} >= FASTER_IN_BFLOAT16


@pytest.mark.large(
    like="tests/pipeline/test_training.py::test_jax_trains_in_a_process_of_its_own_without_tensorflow_and_the_model_comes_back"
)
@pytest.mark.slow
def test_auto_trains_as_the_backend_that_it_stands_for(tmp_path, monkeypatch, capsys):
    files = [write(tmp_path / "train", 300, 1)], [write(tmp_path / "validation", 200, 2)]
    monkeypatch.setattr(auto_settings, "FASTER_ON_JAX", {"mlp": BackendCosts(2.0, 1.0, 1e-9)})
    found = {}
    for backend in ("jax", "auto"):
        training = Training(**{**SETTINGS, "epochs": 1, "backend": backend})
        result = train(TrainingJob(MODEL, training, MAP, *files, 1), tmp_path / backend)
        assert not result.trained_here
        assert (result.history["backend"], result.history["precision"]) == ("jax", "float32")
        found[backend] = result.learner.predict(packed_reader(files[1], MAP, 256))[1]
    np.testing.assert_array_equal(found["auto"], found["jax"])
    assert capsys.readouterr().err.count("Training on jax in float32 (chosen by `auto`)") == 1


@pytest.mark.slow
def test_auto_trains_in_the_precision_that_it_stands_for(tmp_path, capsys):
    files = [write(tmp_path / "train", 300, 1)], [write(tmp_path / "validation", 200, 2)]
    found = {}
    for precision in ("float32", "mixed_bfloat16", "auto"):
        training = Training(**{**SETTINGS, "epochs": 1, "precision": precision})
        result = train(TrainingJob(MODEL, training, MAP, *files, 1), tmp_path / precision)
        found[precision] = result.learner.predict(packed_reader(files[1], MAP, 256))[1]
    assert (result.history["backend"], result.history["precision"]) == ("tensorflow", "mixed_bfloat16")
    np.testing.assert_array_equal(found["auto"], found["mixed_bfloat16"])
    assert np.abs(found["auto"] - found["float32"]).max() > 0
    assert capsys.readouterr().err.count("Training on tensorflow in mixed_bfloat16 (chosen by `auto`)") == 1
