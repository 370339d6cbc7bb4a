"""Requests that are replayed before a version is used (W1-W6).

A docstring names the tests of TF Serving that ask the same, in saved_model_warmup_test.cc and
saved_model_warmup_util_test.cc of servables/tensorflow/.
"""

import contextlib

import httpx
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import classification_pb2, inference_pb2, prediction_log_pb2, regression_pb2

from tests.contract import models, servers
from tests.contract.rpc import POLL, Rpc, add_version, examples, request, wait_for


@pytest.fixture
def source(model_folder):
    return model_folder / models.FOLDER


def predict_log(signature="half_plus_two", **inputs):
    found = prediction_log_pb2.PredictionLog()
    found.predict_log.request.CopyFrom(request(inputs or {"x": np.float32([1])}, signature=signature))
    return found


def classify_log(signature="classify"):
    found = classification_pb2.ClassificationRequest(model_spec={"signature_name": signature})
    found.input.CopyFrom(examples({"x": 0.5}))
    return prediction_log_pb2.PredictionLog(classify_log={"request": found})


def regress_log(signature="regress"):
    found = regression_pb2.RegressionRequest(model_spec={"signature_name": signature})
    found.input.CopyFrom(examples({"x": 0.5}))
    return prediction_log_pb2.PredictionLog(regress_log={"request": found})


def multi_inference_log(signature="regress"):
    found = inference_pb2.MultiInferenceRequest(input=examples({"x": 0.5}))
    found.tasks.add(model_spec={"name": "m", "signature_name": signature}, method_name="tensorflow/serving/regress")
    return prediction_log_pb2.PredictionLog(multi_inference_log={"request": found})


def write(version, *logs):
    file = version / "assets.extra" / "tf_serving_warmup_requests"
    file.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for log in logs:
            writer.write(log if isinstance(log, bytes) else log.SerializeToString())


class Server:
    """A server of version 1, to which a version 2 is pushed; `status()` is what becomes of it."""

    def __init__(self, source, base, addresses):
        self._source, self._base, self.url = source, base, addresses.rest

    def push(self, *logs, text=None):
        version = add_version(self._source, self._base, "new")
        write(version, *logs)
        if text is not None:
            (version / "assets.extra" / "tf_serving_warmup_requests").write_bytes(text)
        version.rename(self._base / "2")

    def status(self):
        def ended():
            rows = httpx.get(f"{self.url}/v1/models/m/versions/2", trust_env=False).json()
            [row] = rows.get("model_version_status", [{"state": "START"}])
            return row if row["state"] in ("AVAILABLE", "END") else None

        row = wait_for(ended)
        return row["state"], row["status"]["error_code"], row["status"]["error_message"]


@pytest.fixture
def serving(source, tmp_path):
    @contextlib.contextmanager
    def start(*flags):
        base = tmp_path / models.NAME
        add_version(source, base, 1)
        flags = [f"--model_base_path={base}", "--model_name=m", POLL, "--max_num_load_retries=0", *flags]
        with servers.start(flags) as addresses:
            yield Server(source, base, addresses)

    return start


@pytest.mark.slow
@pytest.mark.parametrize("flags", [(), ("--num_request_iterations_for_warmup=2",)])
def test_W1_W4_every_kind_of_record_is_replayed(serving, flags):
    """MixedWarmupData, RunSuccess."""
    with serving(*flags) as server:
        server.push(*[predict_log(), classify_log(), regress_log(), multi_inference_log()] * 10)
        assert server.status() == ("AVAILABLE", "OK", "")


def test_W1_a_version_may_have_an_empty_file_or_none(serving):
    """NoWarmupDataFile (the server's first version), WarmupDataFileEmpty."""
    with serving() as server:
        server.push()
        assert server.status() == ("AVAILABLE", "OK", "")


@pytest.mark.parametrize(
    ("log", "code", "message"),
    [
        (predict_log("nope"), "FAILED_PRECONDITION", 'Serving signature key "nope" not found.'),
        (predict_log("failing", x=np.float32([-1])), "INVALID_ARGUMENT", "not positive"),
        (classify_log("regress"), "INVALID_ARGUMENT", "Expected classification signature outputs"),
        (regress_log("nope"), "INVALID_ARGUMENT", "No signature was found with the name: nope"),
        (multi_inference_log("nope"), "INVALID_ARGUMENT", "Requested signature not found in model graph: nope"),
        (b"\xff no proto", "INVALID_ARGUMENT", "Failed to parse warmup record"),
        (prediction_log_pb2.PredictionLog(session_run_log={}), "UNIMPLEMENTED", "Unsupported log_type for warmup"),
        (prediction_log_pb2.PredictionLog(predict_streamed_log={}), "UNIMPLEMENTED", "Unsupported log_type for warmup"),
    ],
)
def test_W2_a_failing_record_fails_the_load(serving, log, code, message):
    """RunFailure, UnparsableRecord, UnsupportedLogType_SessionRun, UnsupportedLogType_PredictStreamed."""
    with serving() as server:
        server.push(predict_log(), log)
        state, found, text = server.status()
        assert (state, found) == ("END", code) and message in text


def test_W2_a_file_of_another_format(serving):
    """UnsupportedFileFormat."""
    with serving() as server:
        server.push(text=b"this is no TFRecord file, whatever its name says")
        state, code, message = server.status()
        assert (state, code) == ("END", "DATA_LOSS")
        assert message.endswith(". Please verify your warmup data is in TFRecord format.")


def test_W2_fewer_bytes_than_a_records_header_are_the_end_of_the_file(serving):
    # TensorFlow's reader, which TF Serving uses too, takes up to 11 bytes for the end.
    with serving() as server:
        server.push(text=b"no TFRecord")
        assert server.status() == ("AVAILABLE", "OK", "")


@pytest.mark.parametrize(("count", "state"), [(1000, "AVAILABLE"), (1001, "END")])
def test_W1_W2_at_most_1000_records(serving, count, state):
    """TooManyWarmupRecords."""
    with serving() as server:
        server.push(*[predict_log().SerializeToString()] * count)
        found, _, message = server.status()
        assert found == state
        assert ("Number of warmup records exceeds the maximum (1000)" in message) == (state == "END")


def test_W3_warm_up_can_be_turned_off(serving):
    with serving("--enable_model_warmup=false") as server:
        server.push(predict_log("nope"))
        assert server.status()[0] == "AVAILABLE"


@pytest.mark.slow
def test_W3_each_record_is_replayed_as_often_as_told(serving, tmp_path):
    monitoring = tmp_path / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    flags = [f"--monitoring_config_file={monitoring}", "--num_request_iterations_for_warmup=3"]
    with serving(*flags) as server:
        server.push(predict_log("slow", seconds=np.float32([0.2])))
        assert server.status()[0] == "AVAILABLE"
        page = httpx.get(f"{server.url}/monitoring/prometheus/metrics", trust_env=False).text
    [line] = [line for line in page.splitlines() if "model_warmup_latency_sum" in line]
    assert float(line.rpartition(" ")[2]) >= 3 * 0.2e6


def test_W3_the_model_that_a_record_names_is_not_read(serving):
    log = predict_log()
    log.predict_log.request.model_spec.name = "another"
    log.predict_log.request.model_spec.version.value = 77
    with serving() as server:
        server.push(log)
        assert server.status()[0] == "AVAILABLE"


def test_W6_the_artifact_of_a_version_in_ml_metadata_is_not_shown(source, tmp_path):
    base = tmp_path / "m"
    version = add_version(source, base, 4)
    (version / "assets.extra").mkdir(exist_ok=True)
    (version / "assets.extra" / "mlmd_uuid").write_text("run-17/model-4\n")
    monitoring = tmp_path / "monitoring.config"
    monitoring.write_text("prometheus_config { enable: true }")
    flags = [f"--model_base_path={base}", "--model_name=m", f"--monitoring_config_file={monitoring}"]
    with servers.start(flags) as addresses, Rpc(addresses.grpc) as rpc:
        assert rpc.answering() == 4
        page = httpx.get(f"{addresses.rest}/monitoring/prometheus/metrics", trust_env=False).text
    assert [line for line in page.splitlines() if "mlmd_map" in line] == ["# TYPE :tensorflow:serving:mlmd_map gauge"]
