"""What a client may do over gRPC."""

import contextlib
import time

import grpc
from tensorflow_serving.apis import (
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

from tests.attack.target import Bystander, Measure, Target, costs
from tests.fuzz.servable import NAME
from tests.serving.raw_grpc import connect, opened_calls


def string_fill(target: Target) -> list[Measure]:
    """A tensor of 262,143 strings that gives one, of a megabyte, for all of them."""
    if not target.server.grpc:
        return []
    request = predict_pb2.PredictRequest()
    request.model_spec.name, request.model_spec.signature_name = NAME, "regress"
    tensor = request.inputs["inputs"]
    tensor.dtype = 7  # DT_STRING
    tensor.tensor_shape.dim.add(size=(1 << 18) - 1)
    tensor.string_val.append(b"a" * target.take(1 << 20, 1 << 14))
    with grpc.insecure_channel(target.server.grpc) as channel, Bystander(target) as other, costs(target) as cost:
        stub = prediction_service_pb2_grpc.PredictionServiceStub(channel)
        try:
            stub.Predict(request, timeout=60)
            code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            code = error.code()
    found = [Measure(f"answers other than INVALID_ARGUMENT ({code.name})", code.name != "INVALID_ARGUMENT", 0)]
    if cost.peak_bytes is not None:
        found.append(Measure("memory", cost.peak_bytes / (1 << 20), 64, "MiB"))
    return [*found, *other.measures()]


def unsent_messages(target: Target) -> list[Measure]:
    """Calls that are opened, on one connection and on several, and whose message never comes."""
    if not target.server.grpc:
        return []
    request = get_model_status_pb2.GetModelStatusRequest()
    request.model_spec.name = NAME
    slowest = 0.0
    with contextlib.ExitStack() as stack, Bystander(target) as other, costs(target) as cost:
        for calls in [8, *[90] * target.take(20, 4)]:
            attacker = stack.enter_context(connect(target.server.grpc))
            attacker.sendall(opened_calls("/tensorflow.serving.PredictionService/Predict", calls))
        time.sleep(0.5)
        with grpc.insecure_channel(target.server.grpc) as channel:
            for _ in range(20):
                before = time.perf_counter()
                with contextlib.suppress(grpc.RpcError):
                    model_service_pb2_grpc.ModelServiceStub(channel).GetModelStatus(request, timeout=20)
                slowest = max(slowest, time.perf_counter() - before)
    found = [Measure("another client's slowest answer over gRPC", slowest * 1000, 2000, "ms")]
    if cost.peak_bytes is not None:
        found.append(Measure("memory", cost.peak_bytes / (1 << 20), 64, "MiB"))
    return [*found, *other.measures()]


ATTACKS = (string_fill, unsent_messages)
