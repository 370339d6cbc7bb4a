"""Bad input to a whole server: it answers by the contract or in one line, never with a traceback or a hang."""

import json
import shutil
import socket
import threading
import time

import grpc
import httpx
import numpy as np
import pytest
import tensorflow as tf
from click.testing import CliRunner
from tensorflow_serving.apis import inference_pb2, predict_pb2, prediction_service_pb2_grpc

from ctrpipe.pipeline.cli import main
from ctrpipe.serving.server import ServerOptions, running_server
from tests.contract.servers import free_port
from tests.fuzz.servable import NAME, save

pytestmark = pytest.mark.timeout(120)  # one that starts in place of an error would serve for ever
PREDICT = f"/v1/models/{NAME}:predict"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save(tmp_path_factory.mktemp("source") / "1")


@pytest.fixture
def models(model, tmp_path):
    shutil.copytree(model, tmp_path / NAME / "1")
    return tmp_path


@pytest.fixture(scope="module")
def server(model):
    with running_server(ServerOptions(model.parent, NAME)) as addresses:
        yield addresses


@pytest.fixture
def rest(server):
    with httpx.Client(base_url=server.rest, trust_env=False, timeout=60) as client:
        yield client


@pytest.fixture
def rpc(server):
    with grpc.insecure_channel(server.grpc, [("grpc.max_receive_message_length", -1)]) as channel:
        yield prediction_service_pb2_grpc.PredictionServiceStub(channel)


def prediction(**inputs):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = NAME
    for name, values in inputs.items():
        request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
    return request


def one_line(*arguments):
    """Returns the message of a command that refuses to start."""
    result = CliRunner().invoke(main, ["serve", *map(str, arguments)])
    assert result.exit_code == 2 and "Traceback" not in result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("ctrpipe:")]
    return line


@pytest.mark.slow
@pytest.mark.parametrize("form", ["instances", "inputs"])
def test_100_000_rows_in_one_request(rest, form):
    rows = np.arange(100_000, dtype=np.float32)
    answer = rest.post(PREDICT, content=json.dumps({form: rows.tolist()})).json()
    found = answer["predictions" if form == "instances" else "outputs"]
    np.testing.assert_array_equal(np.array(found, np.float32), rows / 2 + 2)


def test_100_000_rows_in_one_grpc_request(rpc):
    rows = np.arange(100_000, dtype=np.float32)
    found = tf.make_ndarray(rpc.Predict(prediction(x=rows), timeout=30).outputs["y"])
    np.testing.assert_array_equal(found, rows / 2 + 2)


def test_a_multi_inference_that_is_refused_leaves_the_signatures_as_they_are(rpc):
    request = inference_pb2.MultiInferenceRequest()
    task = request.tasks.add(method_name="tensorflow/serving/regress")
    task.model_spec.name = NAME
    request.input.example_list.examples.add()
    with pytest.raises(grpc.RpcError) as error:
        rpc.MultiInference(request, timeout=30)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert tf.make_ndarray(rpc.Predict(prediction(x=np.float32([2])), timeout=30).outputs["y"]).tolist() == [3.0]


@pytest.mark.parametrize(
    ("value", "size"), [(1.0, 1 << 40), (1.0, 1 << 25), (b"", 1 << 26), (b"x" * (1 << 20), 262_143)]
)
def test_a_shape_far_beyond_its_values_is_refused_without_their_memory(rpc, value, size):
    request = prediction(x=[value])
    request.inputs["x"].tensor_shape.dim[0].size = size
    began = time.monotonic()
    with pytest.raises(grpc.RpcError) as error:
        rpc.Predict(request, timeout=30)
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert time.monotonic() - began < 5


def test_a_request_above_the_limit_is_refused_and_the_server_goes_on(model):
    with running_server(ServerOptions(model.parent, NAME, max_request_bytes=1000)) as server:
        with httpx.Client(base_url=server.rest, trust_env=False) as client:
            answer = client.post(PREDICT, content=json.dumps({"instances": [1.0] * 1000}))
            assert answer.status_code in (400, 413) and "1000" in answer.json()["error"]
            assert client.post(PREDICT, content='{"instances": [2]}').json() == {"predictions": [3.0]}


def test_a_model_folder_that_vanishes_is_served_on(models):
    options = ServerOptions(models / NAME, NAME, file_system_poll_wait_seconds=0.05)
    with running_server(options) as server, httpx.Client(base_url=server.rest, trust_env=False) as client:
        (models / NAME).rename(models / "elsewhere")  # at once: a folder without versions is another matter
        end = time.monotonic() + 1
        while time.monotonic() < end:
            assert client.post(PREDICT, content='{"instances": [2]}').json() == {"predictions": [3.0]}
            time.sleep(0.02)
        rows = client.get(f"/v1/models/{NAME}").json()["model_version_status"]
        assert [(row["version"], row["state"]) for row in rows] == [("1", "AVAILABLE")]


def test_clients_that_vanish_leave_no_thread_and_no_connection(server, rest):
    body = json.dumps({"instances": [1.0] * 20_000}).encode()
    head = f"POST {PREDICT} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    host, port = server.rest.removeprefix("http://").split(":")
    rest.post(PREDICT, content=body)
    before = threading.active_count()
    for _ in range(40):
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head + body)
    assert rest.post(PREDICT, content='{"instances": [2]}').json() == {"predictions": [3.0]}
    assert threading.active_count() <= before + 16  # the pool's own threads


@pytest.mark.parametrize("port", ["rest_api_port", "port"])
def test_a_port_in_use_is_one_line(models, port):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        number = other.getsockname()[1]
        flags = {"rest_api_port": 0, "port": 0, port: number}
        line = one_line(f"--model_base_path={models / NAME}", *(f"--{name}={value}" for name, value in flags.items()))
    assert str(number) in line and f"choose another --{port}" in line


@pytest.mark.parametrize(
    ("flag", "text", "said"),
    [
        ("model_config_file", 'model_config_list { confg { name: "ctr" } }', "confg"),
        ("model_config_file", 'model_config_list { config { name: "ctr" base_path: "models" } }', "absolute"),
        ("monitoring_config_file", "prometheus_config { enabel: true }", "enabel"),
        ("batching_parameters_file", "max_batch_sice { value: 8 }", "max_batch_sice"),
        ("tensorflow_session_config_file", "intra_op_paralelism_threads: 1", "intra_op_paralelism_threads"),
    ],
)
def test_a_typo_in_a_file_is_one_line_that_names_it(models, flag, text, said):
    file = models / f"{flag}.pbtxt"
    file.write_text(text)
    ports = f"--port={free_port()}", f"--rest_api_port={free_port()}"
    line = one_line(f"--model_base_path={models / NAME}", *ports, "--enable_batching", f"--{flag}={file}")
    assert str(file) in line and said in line
