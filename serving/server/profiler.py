"""TensorFlow's profiler service on the port of gRPC, as TensorBoard's "capture profile" asks it (server.cc).

TensorFlow can serve it only on a port of its own. That is a free port here, and what arrives on the port of gRPC is
passed on to it unchanged.
"""

import functools
import socket
from collections.abc import Callable

import grpc
import tensorflow as tf

_SERVICE = "/tensorflow.ProfilerService/"
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class ProfilerHandler(grpc.GenericRpcHandler):
    """Passes the profiler's requests on to TensorFlow, whose profiler starts with the first of them."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns the handler of a method of the profiler, None for those of other services."""
        method = details.method
        return grpc.unary_unary_rpc_method_handler(_forward(method)) if method.startswith(_SERVICE) else None


def _forward(method: str) -> Callable[[bytes, grpc.ServicerContext], bytes]:
    def respond(body: bytes, context: grpc.ServicerContext) -> bytes:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = _profiler().unary_unary(method)
        try:
            answer: bytes = call(body, timeout=context.time_remaining())
            return answer
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
            raise AssertionError("abort raises") from error

    return respond


@functools.cache
def _profiler() -> grpc.Channel:
    """Returns a channel to the process's profiler, which TensorFlow starts once and never stops."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    return grpc.insecure_channel(f"127.0.0.1:{port}", _NO_LIMIT)
