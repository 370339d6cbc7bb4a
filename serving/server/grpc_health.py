"""The gRPC health service. In grpcio's implementation, a Watch call that ends can stop the whole server."""

import functools
import threading
from collections.abc import Callable, Iterator, Sequence

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2

from ctrpipe.serving.server.grpc_arrivals import Arrivals, Calls

MOST_WATCHING = 4096  # of some 20 kB each
_SERVICE = "grpc.health.v1.Health"


def _answer(status: int) -> bytes:
    return bytes(health_pb2.HealthCheckResponse(status=status).SerializeToString())


_SERVING = _answer(health_pb2.HealthCheckResponse.SERVING)
_NOT_SERVING = _answer(health_pb2.HealthCheckResponse.NOT_SERVING)
_UNKNOWN = _answer(health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)


class Health:
    """Answers Check and Watch. All services are SERVING until the server stops, so a watcher needs no thread.

    Above MOST_WATCHING watchers, the oldest watcher of the connection with the most watchers is cancelled. A gRPC
    client then watches again.

    Args:
        services: The names of the known services.
        arrivals: Waits for the messages of calls.
    """

    def __init__(self, services: Sequence[str], arrivals: Arrivals):
        self._services = frozenset(services)
        self._arrivals = arrivals
        self._lock = threading.Lock()
        self._watching = Calls()
        self._senders: dict[int, Callable[..., None]] = {}  # by call

    def handler(self) -> grpc.GenericRpcHandler:
        """Returns the handler of the service."""
        watch = functools.partial(self._watch)
        watch.experimental_non_blocking = True  # type: ignore[attr-defined]  # the thread leaves before the call ends
        handlers = {
            "Check": grpc.stream_unary_rpc_method_handler(self._check),
            "Watch": grpc.stream_stream_rpc_method_handler(watch),
        }
        return grpc.method_handlers_generic_handler(_SERVICE, handlers)

    def end(self) -> None:
        """Tells all watchers that the server stops."""
        with self._lock:
            senders = list(self._senders.values())
        for send in senders:
            send(_NOT_SERVING)
            send(None)  # the end of the answers

    def _check(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        if self._asked_service(requests, context) not in self._services:
            context.abort(grpc.StatusCode.NOT_FOUND, "")
        return _SERVING

    def _watch(self, requests: Iterator[bytes], context: grpc.ServicerContext, send: Callable[..., None]) -> None:
        service = self._asked_service(requests, context)
        with self._lock:
            self._watching.add(context)
            self._senders[id(context)] = send
            gives_way = self._watching.pop_of_largest() if len(self._watching) > MOST_WATCHING else None
        if gives_way:
            gives_way.cancel()
        if not context.add_callback(functools.partial(self._left, context)):
            self._left(context)  # the call has ended
            return
        with self._arrivals.waiting(context):  # for a client that takes no bytes
            send(_SERVING if service in self._services else _UNKNOWN)

    def _left(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            self._watching.remove(context)
            self._senders.pop(id(context), None)

    def _asked_service(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> str:
        """Returns the name of the requested service. Ends the call if the message has none."""
        body = self._arrivals.small_message(requests, context)
        try:
            return str(health_pb2.HealthCheckRequest.FromString(body).service)
        except DecodeError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "")  # as gRPC's own health service
            raise AssertionError("abort raises") from error
