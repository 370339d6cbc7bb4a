"""TensorFlow's profiler service on the gRPC port, for TensorBoard's "capture profile" (server.cc).

TensorFlow can serve the profiler only on a port of its own. The server gives it a free port and forwards the profiler's
requests from the gRPC port unchanged.
"""

import functools
import socket
from collections.abc import Callable, Iterator

import grpc
import tensorflow as tf

from ctrpipe.serving.server.grpc_arrivals import Arrivals

_SERVICE = "/tensorflow.ProfilerService/"
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class ProfilerHandler(grpc.GenericRpcHandler):
    """Forwards the profiler's requests to TensorFlow. The first request starts TensorFlow's profiler."""

    def __init__(self, arrivals: Arrivals):
        self._arrivals = arrivals

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns the handler of a profiler method; None for other services."""
        method = details.method
        if not method.startswith(_SERVICE):
            return None
        return grpc.stream_unary_rpc_method_handler(_forward(method, self._arrivals))


def _forward(method: str, arrivals: Arrivals) -> Callable[[Iterator[bytes], grpc.ServicerContext], bytes]:
    def respond(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        body = arrivals.small_message(requests, context)
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = _profiler().unary_unary(method)
        try:
            with arrivals.running():
                answer: bytes = call(body, timeout=context.time_remaining())
            return answer
        except grpc.RpcError as error:
            context.abort(error.code(), error.details())
            raise AssertionError("abort raises") from error

    return respond


@functools.cache
def _profiler() -> grpc.Channel:
    """Returns a channel to the process's profiler. TensorFlow starts it once and never stops it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    return grpc.insecure_channel(f"127.0.0.1:{port}", _NO_LIMIT)
