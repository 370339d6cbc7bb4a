"""Shadow traffic: a sample of the requests is replayed on the version with the label of --shadow."""

import contextlib

import httpx
import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.serving.server import ServerOptions, parse_flags, running_server
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.served import ServedVersion
from ctrpipe.serving.server.shadow import Shadow
from tests.contract.rpc import Rpc, label, model_config, wait_for
from tests.fuzz.servable import save

X = [2.0, 4.0]


class NoServable:
    signatures: dict = {}  # noqa: RUF012
    input_types: dict = {}  # noqa: RUF012


STABLE, NEW = (ServedVersion("ctr", number, NoServable()) for number in (1, 2))


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """Version 1, stable, answers x / 2 + 2; version 2, canary, x / 2 + 3."""
    folder = tmp_path_factory.mktemp("versions")
    for number, bias in ((1, 2.0), (2, 3.0)):
        save(folder / "ctr" / str(number), bias)
    file = folder / "models.config"
    policy = "model_version_policy { all {} }"
    file.write_text(model_config(ctr=(folder / "ctr", policy, label("stable", 1), label("canary", 2))))
    return file


@pytest.mark.slow
def test_what_the_stable_version_answers_is_compared_over_rest_and_grpc(config, tmp_path):
    options = ServerOptions(
        model_config_file=config,
        allow_version_labels_for_unavailable_models=True,
        shadow="canary",
        shadow_log=tmp_path,
        sampling_rate=1.0,
    )
    with running_server(options) as addresses, Rpc(addresses.grpc) as rpc:
        wait_for(lambda: rpc.states(name="ctr") == {1: "AVAILABLE", 2: "AVAILABLE"})
        url = f"{addresses.rest}/v1/models/ctr/labels"
        body = {"inputs": {"x": X}}
        for name, expected in (("stable", [3.0, 4.0]), ("canary", [4.0, 5.0])):
            answer = httpx.post(f"{url}/{name}:predict", json=body, trust_env=False)
            assert answer.json()["outputs"] == expected
        spec = model_pb2.ModelSpec(name="ctr", version_label="stable")
        request = predict_pb2.PredictRequest(model_spec=spec, inputs={"x": tf.make_tensor_proto(np.float32(X))})
        rpc.prediction.Predict(request)
    (file,) = (tmp_path / "ctr").iterdir()
    rows = pyarrow.parquet.read_table(file).to_pylist()
    found = [
        (row["version"], row["shadow_version"], row["signature"], row["row"], row["served"], row["shadow"])
        for row in rows
    ]
    assert found == [(1, 2, "serving_default", 0, 3.0, 4.0), (1, 2, "serving_default", 1, 4.0, 5.0)] * 2
    assert all(row["time"] > 1.7e9 for row in rows)


# The comparison alone


@contextlib.contextmanager
def shadowing(use, folder=None):
    """Yields (a Shadow, its Metrics); the comparisons are done when the block ends."""
    metrics = Metrics()
    shadow = Shadow("canary", 1.0, use, metrics, folder)
    yield shadow, metrics
    shadow.close()


def use_new(*_):
    return contextlib.nullcontext(NEW)


def count(metrics, name, *labels):
    lines = [line for line in metrics.page().decode().splitlines() if not line.startswith("#")]
    chosen = [line for line in lines if f":{name}" in line and all(label in line for label in labels)]
    return sum(float(line.rpartition(" ")[2]) for line in chosen)


def test_differences_are_counted_by_output():
    served = {"ctr": np.float32([0.5, 0.25]), "cvr": np.float32([0.1]), "id": np.int64([1])}
    answered = {"ctr": np.float32([0.5, 0.28]), "cvr": np.float32([0.9]), "id": np.int64([2])}
    with shadowing(use_new) as (shadow, metrics):
        shadow.add(STABLE, "serving_default", 1, served, lambda version: answered)
    assert count(metrics, "shadow_request_count", 'status_code="OK"') == 1
    assert count(metrics, "shadow_difference_count", 'output="ctr"') == 2
    assert count(metrics, "shadow_difference_count", 'output="id"') == 0
    assert count(metrics, "shadow_difference_sum", 'output="ctr"') == pytest.approx(0.03, abs=1e-6)
    assert count(metrics, "shadow_difference_sum", 'output="cvr"') == pytest.approx(0.8, abs=1e-6)
    assert count(metrics, "shadow_difference_bucket", 'output="ctr"', 'le="1e-06"') == 1
    assert count(metrics, "shadow_difference_bucket", 'output="ctr"', 'le="0.01"') == 1
    assert count(metrics, "shadow_difference_bucket", 'output="ctr"', 'le="0.0316228"') == 2


def test_what_the_shadow_answers_itself_is_not_compared():
    with shadowing(use_new) as (shadow, metrics):
        shadow.add(NEW, "serving_default", 1, {"y": np.float32([1])}, lambda version: pytest.fail("asked"))
    assert count(metrics, "shadow_request_count") == 0


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ({"y": np.float32([1, 2])}, "FAILED_PRECONDITION"),  # of another shape
        ({"z": np.float32([1])}, "FAILED_PRECONDITION"),
        (ServingError("INVALID_ARGUMENT", "wrong"), "INVALID_ARGUMENT"),
        (KeyError("no such signature"), "FAILED_PRECONDITION"),
        (RuntimeError("a defect"), "INTERNAL"),
    ],
)
def test_a_shadow_that_cannot_be_compared_is_counted_and_the_next_is_compared(answer, status):
    def ask(version):
        if isinstance(answer, Exception):
            raise answer
        return answer

    served = {"y": np.float32([1])}
    with shadowing(use_new) as (shadow, metrics):
        shadow.add(STABLE, "serving_default", 1, served, ask)
        shadow.add(STABLE, "serving_default", 1, served, lambda version: served)
    assert count(metrics, "shadow_request_count", f'status_code="{status}"') == 1
    assert count(metrics, "shadow_request_count", 'status_code="OK"') == 1


def test_a_label_without_a_version_is_counted():
    def use(name, number, label):
        raise ServingError("INVALID_ARGUMENT", f"Unrecognized servable version label: {label}")

    with shadowing(use) as (shadow, metrics):
        shadow.add(STABLE, "serving_default", 1, {}, lambda version: {})
    assert count(metrics, "shadow_request_count", 'status_code="INVALID_ARGUMENT"') == 1


def test_each_value_of_a_row_is_a_line_of_the_file(tmp_path):
    served, answered = np.zeros((2, 2, 1), np.float32), np.ones((2, 2, 1), np.float32)
    with shadowing(use_new, tmp_path) as (shadow, _):
        shadow.add(
            STABLE, "s", 1, {"y": served, "one": np.float32(3)}, lambda version: {"y": answered, "one": np.float32(4)}
        )
    (file,) = (tmp_path / "ctr").iterdir()
    table = pyarrow.parquet.read_table(file)
    assert table["row"].to_pylist() == [0, 0, 1, 1, 0]
    assert table["shadow"].to_pylist() == [1, 1, 1, 1, 4] and table["served"].to_pylist() == [0, 0, 0, 0, 3]


def test_a_log_of_no_shadow_is_one_line():
    with pytest.raises(InputError, match="--shadow_log needs --shadow; name the label"):
        parse_flags(["--shadow_log=x"])
