"""A failed gRPC call ends at once: nothing of it waits for the garbage collector.

A connection has at most 100 calls. gRPC counts a call until the server has freed it.
"""

import gc

import grpc
import pytest
import tensorflow as tf
from grpc_health.v1 import health_pb2
from tensorflow_serving.apis import predict_pb2

from ctrpipe.serving.server import ServerOptions, running_server

MORE_THAN_A_CONNECTION_HAS = 120
PREDICT, HEALTH = "/tensorflow.serving.PredictionService/Predict", "/grpc.health.v1.Health/Check"


class Positive(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32, name="x")])
    def serve(self, x):
        with tf.control_dependencies([tf.debugging.assert_positive(x)]):
            return {"y": tf.identity(x)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    model = Positive()
    tf.saved_model.save(model, str(folder / "1"), {"serving_default": model.serve})
    return folder


@pytest.fixture(scope="module", params=[False, True], ids=["alone", "batched"])
def address(request, model):
    options = ServerOptions(model, "m", enable_batching=request.param, enable_grpc_healthcheck_service=True)
    with running_server(options) as addresses:
        yield addresses.grpc


@pytest.fixture
def no_garbage_collector():
    gc.disable()
    yield
    gc.enable()


def request(name: str, *values: float) -> bytes:
    request = predict_pb2.PredictRequest()
    request.model_spec.name = name
    if values:
        request.inputs["x"].CopyFrom(tf.make_tensor_proto(values, tf.float32))
    return request.SerializeToString()


@pytest.mark.usefixtures("no_garbage_collector")
@pytest.mark.parametrize(
    ("method", "message", "code"),
    [
        pytest.param(PREDICT, request("m", -1.0), "INVALID_ARGUMENT", id="the graph fails"),
        pytest.param(PREDICT, request("m"), "INVALID_ARGUMENT", id="no input"),
        pytest.param(PREDICT, request("n", 1.0), "NOT_FOUND", id="unknown model"),
        pytest.param(PREDICT, b"\xff", "INTERNAL", id="no message"),
        pytest.param(PREDICT, b"\x1f\x8b\x08", "INTERNAL", id="damaged gzip"),
        pytest.param(HEALTH, health_pb2.HealthCheckRequest(service="n").SerializeToString(), "NOT_FOUND", id="health"),
        pytest.param(HEALTH, b"\xff", "INVALID_ARGUMENT", id="no message to health"),
    ],
)
def test_a_connection_may_have_any_number_of_failing_calls(address, method, message, code):
    with grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = channel.unary_unary(method)
        codes = [ask.future(message, timeout=60).code().name for _ in range(MORE_THAN_A_CONNECTION_HAS)]
    assert codes == [code] * MORE_THAN_A_CONNECTION_HAS
