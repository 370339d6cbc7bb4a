"""Fuzzed gRPC calls, each followed by a valid one."""

import contextlib

import grpc
import tensorflow as tf
from tensorflow_serving.apis import model_pb2, predict_pb2

from tests.fuzz.connection import LIMIT_SECONDS, Fault
from tests.fuzz.grpc_requests import METHODS, MULTI_INFERENCE, PREDICT, Call, calls
from tests.fuzz.rounds import Outcome, run_round
from tests.fuzz.servable import NAME

_REFUSALS = {"INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE"}


def grpc_round(address: str, number: int, examples: int) -> Outcome:
    """Sends `examples` calls over one channel; in between the server must answer valid calls correctly."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(address, options) as channel:

        def send(call: Call) -> list[str]:
            answer = judge(call, *invoke(channel, call))
            judge(_GOOD, *invoke(channel, _GOOD))
            return [answer]

        return run_round(number, examples, calls(), send)


def invoke(channel: grpc.Channel, call: Call) -> tuple[str, str, bytes]:
    """Returns the status name, message and response of a call."""
    method = channel.unary_unary(call.method)
    timeout = 0.0005 if call.manner == "expire" else LIMIT_SECONDS
    future = method.future(call.message, timeout=timeout)
    if call.manner == "cancel":
        future.cancel()
    with contextlib.suppress(grpc.FutureCancelledError):
        error = future.exception()
        if isinstance(error, grpc.RpcError):
            return future.code().name, future.details() or "", b""
        return "OK", "", future.result()
    return "CANCELLED", "", b""


def judge(call: Call, status: str, message: str, response: bytes) -> str:
    """Returns the status if it is allowed. Raises Fault otherwise."""
    if call.expected is not None and call.manner == "wait":
        if status != "OK" or _values(response) != call.expected:
            raise Fault(f"a right call was answered {status} {message}")
    elif status not in _allowed(call):
        raise Fault(f"answered {status} {message}")
    return status


def _allowed(call: Call) -> set[str]:
    if call.manner == "cancel":
        return {"CANCELLED", "OK"} | _REFUSALS | {"UNIMPLEMENTED", "INTERNAL"}
    late = {"DEADLINE_EXCEEDED"} if call.manner == "expire" else set()
    if call.method not in METHODS:
        return late | {"UNIMPLEMENTED"}
    if call.parsed() is None:
        return late | {"INTERNAL", "INVALID_ARGUMENT"}  # what gRPC itself says of bytes that are no message
    if call.method == MULTI_INFERENCE:
        late |= {"UNIMPLEMENTED"}  # a task of another kind than classify and regress
    return late | _REFUSALS | {"OK"}


def _values(response: bytes) -> tuple[float, ...]:
    outputs = predict_pb2.PredictResponse.FromString(response).outputs
    return tuple(tf.make_ndarray(outputs["y"]).tolist())


def _good() -> Call:
    request = predict_pb2.PredictRequest(model_spec=model_pb2.ModelSpec(name=NAME))
    request.inputs["x"].CopyFrom(tf.make_tensor_proto([1.0, -2.0], tf.float32))
    return Call(PREDICT, request.SerializeToString(), expected=(2.5, 1.0))


_GOOD = _good()
