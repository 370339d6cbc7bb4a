"""TensorFlow's profiler service on the gRPC port, for TensorBoard's "capture profile" (server.cc).

TensorFlow can serve the profiler only on a port of its own. The server gives it a free port and forwards the profiler's
requests from the gRPC port unchanged. A request lasts for as long as it says: it ends when its client has left, and few
may be under way.
"""

import functools
import socket
import threading
from collections.abc import Iterator

import grpc
import tensorflow as tf

from ctrpipe.serving.server.grpc_arrivals import Arrivals

_SERVICE = "/tensorflow.ProfilerService/"
_MOST_CALLS = 4  # TensorFlow records for one of them at a time
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class ProfilerHandler(grpc.GenericRpcHandler):
    """Forwards the profiler's requests to TensorFlow. The first request starts TensorFlow's profiler."""

    def __init__(self, arrivals: Arrivals):
        self._arrivals = arrivals
        self._places = threading.Semaphore(_MOST_CALLS)

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns the handler of a profiler method; None for other services."""
        method = details.method
        if not method.startswith(_SERVICE):
            return None
        return grpc.stream_unary_rpc_method_handler(functools.partial(self._respond, method))

    def _respond(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        body = self._arrivals.small_message(requests, context)
        if not self._places.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MOST_CALLS} requests of the profiler are under way")
        try:
            with self._arrivals.running():
                return _forwarded(method, body, context)
        finally:
            self._places.release()


def _forwarded(method: str, body: bytes, context: grpc.ServicerContext) -> bytes:
    """Returns the profiler's answer; ends its work when the call has ended."""
    call = _profiler().unary_unary(method).future(body, timeout=context.time_remaining())
    if not context.add_callback(call.cancel):
        call.cancel()
    if call.code() is not grpc.StatusCode.OK:
        context.abort(call.code(), call.details())
    answer: bytes = call.result()
    return answer


@functools.cache
def _profiler() -> grpc.Channel:
    """Returns a channel to the process's profiler. TensorFlow starts it once and never stops it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    return grpc.insecure_channel(f"127.0.0.1:{port}", _NO_LIMIT)
