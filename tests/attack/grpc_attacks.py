"""What a client may do over gRPC."""

import grpc
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from tests.attack.target import Bystander, Measure, Target, costs
from tests.fuzz.servable import NAME


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


ATTACKS = (string_fill,)
