"""The log of requests that --request_log writes."""

import contextlib
import pathlib
import resource
import shutil
import threading
import time
from typing import ClassVar

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from ctrpipe.common.errors import InputError
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server import ServerOptions, running_server, sampling
from ctrpipe.serving.server.metrics import Metrics
from ctrpipe.serving.server.request_log import RequestLog
from ctrpipe.serving.server.served import ServedVersion
from ctrpipe.serving.server.warmup import read_records, replay_warmup
from tests.contract import models

X = np.array([1.0, 2.0], np.float32)
EXAMPLE = tf.train.Example(
    features=tf.train.Features(
        feature={
            "x": tf.train.Feature(float_list=tf.train.FloatList(value=[0.25])),
            "n": tf.train.Feature(int64_list=tf.train.Int64List(value=[3])),
            "s": tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"a"])),
        }
    )
)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "ctr"
    models.save(folder / "7")
    return folder


@contextlib.contextmanager
def server(base, folder, **flags):
    options = ServerOptions(model_name="ctr", model_base_path=base, request_log=folder, **flags)
    with running_server(options) as addresses:
        yield addresses


def read(folder: pathlib.Path) -> list[PredictionLog]:
    files = sorted((folder / "ctr").glob("*.tfrecord"))
    assert sorted(folder.rglob("*")) == [folder / "ctr", *files]  # nothing half written
    return [record for file in files for record in read_records(file)]


def post(addresses, method, body):
    answer = httpx.post(f"{addresses.rest}/v1/models/ctr:{method}", json=body, trust_env=False)
    answer.raise_for_status()


@pytest.mark.slow
def test_what_came_over_rest_is_logged_as_if_it_had_come_over_grpc(base, tmp_path):
    example = {"x": 0.25, "n": 3, "s": "a"}
    with server(base, tmp_path, sampling_rate=1.0) as addresses:
        post(addresses, "predict", {"inputs": {"x": X.tolist()}})
        post(addresses, "regress", {"signature_name": "regress", "examples": [example]})
        post(addresses, "classify", {"signature_name": "classify", "examples": [example]})
    predicted, regressed, classified = read(tmp_path)
    assert (tf.make_ndarray(predicted.predict_log.request.inputs["x"]) == X).all()
    assert (tf.make_ndarray(predicted.predict_log.response.outputs["y"]) == X / 2 + 2).all()
    assert predicted.predict_log.response.model_spec.version.value == 7
    for request in (regressed.regress_log.request, classified.classify_log.request):
        assert list(request.input.example_list.examples) == [EXAMPLE]
    assert regressed.regress_log.response.result.regressions[0].value == 3.25
    found = classified.classify_log.response.result.classifications[0].classes
    assert [(one.label, one.score) for one in found] == [("a", 0.25), ("other", 0.75)]
    for record, signature in ((predicted, "serving_default"), (regressed, "regress"), (classified, "classify")):
        metadata = record.log_metadata
        assert (metadata.model_spec.name, metadata.model_spec.version.value) == ("ctr", 7)
        assert metadata.model_spec.signature_name == signature
        assert (metadata.sampling_config.sampling_rate, list(metadata.saved_model_tags)) == (1.0, ["serve"])
        assert metadata.timestamp_secs > 1.7e9


def test_what_came_over_grpc_is_logged_as_it_came(base, tmp_path):
    spec = model_pb2.ModelSpec(name="ctr")
    predict = predict_pb2.PredictRequest(model_spec=spec, inputs={"x": tf.make_tensor_proto(X)})
    regress = regression_pb2.RegressionRequest(model_spec=model_pb2.ModelSpec(name="ctr", signature_name="regress"))
    regress.input.example_list.examples.append(EXAMPLE)
    classify = classification_pb2.ClassificationRequest(
        model_spec=model_pb2.ModelSpec(name="ctr", signature_name="classify"), input=regress.input
    )
    several = inference_pb2.MultiInferenceRequest(input=regress.input)
    several.tasks.add(model_spec=regress.model_spec, method_name="tensorflow/serving/regress")
    large = predict_pb2.PredictRequest(model_spec=spec, inputs={"x": tf.make_tensor_proto(np.tile(X, 10_000))})
    assert len(large.inputs["x"].tensor_content) == 80_000  # kept beside the message while it is answered
    with server(base, tmp_path, sampling_rate=1.0) as addresses:
        with grpc.insecure_channel(addresses.grpc) as channel:
            stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
            answers = [
                stub.Predict(predict),
                stub.Predict(large),
                stub.Regress(regress),
                stub.Classify(classify),
                stub.MultiInference(several),
            ]
    records = read(tmp_path)
    logged = [getattr(record, record.WhichOneof("log_type")) for record in records]
    assert [one.request for one in logged] == [predict, large, regress, classify, several]
    assert [one.response for one in logged] == answers


def test_a_share_of_the_requests_is_picked_at_random(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling.random, "random", iter([0.1, 0.3, 0.25, 0.2]).__next__)
    requests = RequestLog(tmp_path, 0.25, ["serve"], Metrics())
    assert [requests.picks() for _ in range(4)] == [True, False, False, True]
    requests.close()


def test_a_request_that_is_refused_is_not_logged(base, tmp_path):
    with server(base, tmp_path, sampling_rate=1.0) as addresses:
        answer = httpx.post(f"{addresses.rest}/v1/models/ctr:predict", json={"inputs": {"z": 1}}, trust_env=False)
        assert answer.status_code == 400
    assert list(tmp_path.iterdir()) == []


# The log alone


class NoServable:
    signatures: ClassVar[dict] = {}
    input_types: ClassVar[dict] = {}


VERSION = ServedVersion("a/b", 3, NoServable())
BYTES = 1000


def make() -> PredictionLog:
    record = PredictionLog()
    record.predict_log.request.inputs["x"].string_val.append(b"x" * BYTES)
    return record


def count(metrics: Metrics, status: str) -> str:
    lines = metrics.page().decode().splitlines()
    return next((line.rpartition(" ")[2] for line in lines if f'status_code="{status}"' in line), "0")


def logged(folder: pathlib.Path) -> list[int]:
    """Returns the number of records of each complete file."""
    return [len(list(read_records(file))) for file in sorted((folder / "a%2Fb").glob("*.tfrecord"))]


def test_a_file_ends_at_its_size_and_all_are_complete_after_the_end(tmp_path):
    metrics = Metrics()
    requests = RequestLog(tmp_path, 0.5, ["serve"], metrics, file_bytes=2 * BYTES)
    for _ in range(5):
        requests.add(VERSION, "", BYTES, make)
    requests.close()
    assert logged(tmp_path) == [2, 2, 1]
    assert count(metrics, "OK") == "5"


def test_a_file_ends_at_its_age(tmp_path):
    requests = RequestLog(tmp_path, 0.5, ["serve"], Metrics(), file_seconds=0.05)
    requests.add(VERSION, "", BYTES, make)
    deadline = time.monotonic() + 20
    while not logged(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert logged(tmp_path) == [1]
    requests.close()


def test_what_would_wait_in_too_much_memory_is_not_logged(tmp_path, monkeypatch):
    monkeypatch.setattr(sampling, "WAITING_BYTES", 2 * BYTES)
    metrics, go_on = Metrics(), threading.Event()
    requests = RequestLog(tmp_path, 0.5, ["serve"], metrics)
    requests.add(VERSION, "", BYTES, lambda: (go_on.wait(20), make())[1])
    for _ in range(3):
        requests.add(VERSION, "", BYTES, make)
    go_on.set()
    requests.close()
    assert (count(metrics, "OK"), count(metrics, "RESOURCE_EXHAUSTED")) == ("2", "2")
    requests = RequestLog(tmp_path, 0.5, ["serve"], metrics)
    requests.add(VERSION, "", BYTES, make)  # what was written waits no more
    requests.close()
    assert count(metrics, "OK") == "3"


def test_a_disk_that_takes_no_more_costs_records_and_nothing_else(tmp_path, caplog):
    metrics = Metrics()
    requests = RequestLog(tmp_path / "log", 0.5, ["serve"], metrics)
    (tmp_path / "log" / "a%2Fb").write_text("a file in the way")
    for _ in range(3):
        requests.add(VERSION, "", BYTES, make)
    requests.close()
    assert count(metrics, "INTERNAL") == "3"
    (line,) = caplog.messages
    assert "records are lost until this ends" in line


def test_a_full_disk_is_said_once_and_leaves_whole_files_with_the_counted_records(tmp_path, caplog):
    """A limit on the size of files makes each write fail, as a full disk does."""
    metrics = Metrics()
    requests = RequestLog(tmp_path, 0.5, ["serve"], metrics)

    def add(records: int, total: int, status: str) -> None:
        for _ in range(records):
            requests.add(VERSION, "", BYTES, make)
        end = time.monotonic() + 10
        while count(metrics, status) != str(total) and time.monotonic() < end:
            time.sleep(0.005)
        assert count(metrics, status) == str(total)

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    add(3, 3, "OK")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        add(5, 5, "INTERNAL")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    add(2, 5, "OK")
    requests.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    records = [len(list(tf.data.TFRecordDataset(str(path)))) for path in sorted(files)]
    assert records == [3, 2] and all(path.suffix == ".tfrecord" for path in files)
    assert len(caplog.messages) == 2
    assert "records are lost until this ends" in caplog.messages[0]
    assert caplog.messages[1].endswith("records are written again, after 5 were lost")


@pytest.mark.slow
def test_a_long_error_reaches_the_client_over_grpc_cut(base, tmp_path):
    with server(base, tmp_path) as addresses, grpc.insecure_channel(addresses.grpc) as channel:
        request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name="é%" * 20_000))
        with pytest.raises(grpc.RpcError) as error:
            prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict(request, timeout=20)
    assert error.value.code() == grpc.StatusCode.NOT_FOUND
    details = error.value.details()
    assert details.startswith("Servable not found for request: ") and details.endswith("...TRUNCATED")
    assert len(details) < 1100


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="no sample can be kept there: .*choose another --request_log"):
        RequestLog(tmp_path / "file" / "log", 0.5, ["serve"], Metrics())


@pytest.mark.slow
def test_what_was_logged_warms_up_a_version(base, tmp_path):
    with server(base, tmp_path, sampling_rate=1.0) as addresses:
        post(addresses, "predict", {"inputs": {"x": X.tolist()}})
    (file,) = (tmp_path / "ctr").glob("*.tfrecord")
    warm = tmp_path / "warm"
    models.save(warm / "1")
    (warm / "1" / "assets.extra").mkdir()
    shutil.copy(file, warm / "1" / "assets.extra" / "tf_serving_warmup_requests")
    servable = Servable(warm / "1")
    assert replay_warmup(ServedVersion("ctr", 1, servable), warm / "1") == 1
    servable.close()
