"""TensorFlow's profiler service on the gRPC port, for TensorBoard's "capture profile" (server.cc).

TensorFlow can serve the profiler only on a separate port. The server gives it a free port and forwards the profiler's
requests from the gRPC port unchanged. A request lasts as long as it asks for. It ends early when its client disconnects
or memory runs out, and only a few may run at a time.

TensorFlow keeps its recordings in memory, a kilobyte or more for each request of any client, and the ids of sessions to
end. Continuous recordings, which last until a client fetches them, are therefore not supported, and requests to end an
unknown session are not forwarded.
"""

import functools
import pathlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import grpc
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.grpc_arrivals import Arrivals

_SERVICE = "/tensorflow.ProfilerService/"
_PROFILE, _TERMINATE = "Profile", "Terminate"
_METHODS = (_PROFILE, _TERMINATE, "Monitor")
# The fields of tsl/profiler/protobuf/profiler_service.proto that decide what is forwarded.
_FIELDS = {_PROFILE: {"repository_root": 5, "session_id": 6, "emit_xspace": 9}, _TERMINATE: {"session_id": 1}}
_FLAGS = ("emit_xspace",)
_MOST_CALLS = 4  # TensorFlow records for one of them at a time
_LONGEST_ID = 1 << 10  # of a session
_LOOK_SECONDS = 0.5  # between looks at the memory
_NO_LIMIT = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class ProfilerHandler(grpc.GenericRpcHandler):
    """Forwards the profiler's requests to TensorFlow. The first request starts TensorFlow's profiler.

    Args:
        arrivals: The calls that wait for their message.
        budget: The memory budget, above which a recording ends.
    """

    def __init__(self, arrivals: Arrivals, budget: Budget):
        self._arrivals, self._budget = arrivals, budget
        self._places = threading.Semaphore(_MOST_CALLS)
        self._sessions: Counter[bytes] = Counter()  # those that are recorded
        self._lock = threading.Lock()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        """Returns the handler of a profiler method; None for other services and methods."""
        method = details.method.removeprefix(_SERVICE)
        if not details.method.startswith(_SERVICE) or method not in _METHODS:
            return None
        return grpc.stream_unary_rpc_method_handler(functools.partial(self._respond, method))

    def _respond(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        body = self._arrivals.small_message(requests, context)
        asked: Any = None
        try:
            asked = _message_class(method).FromString(body) if method in _FIELDS else None
        except DecodeError as error:
            context.abort(grpc.StatusCode.INTERNAL, f"The request is none of {method}: {error}")
        session: bytes = asked.session_id if asked else b""
        if len(session) > _LONGEST_ID:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"The id of a session is above {_LONGEST_ID} bytes")
        if method == _TERMINATE and not self._sessions[session]:
            return b""  # as the answer of TensorFlow, which would remember the id for ever
        if method == _PROFILE and not asked.emit_xspace and not _has_a_place(asked.repository_root):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                "The folder of the trace has to be absolute: a relative one would be in the server's working directory",
            )
        if not self._places.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{_MOST_CALLS} requests of the profiler are under way")
        recorded = session if method == _PROFILE else None
        try:
            self._count(recorded, 1)
            with self._arrivals.running():
                return self._forwarded(method, body, context)
        finally:
            self._count(recorded, -1)
            self._places.release()

    def _count(self, session: bytes | None, change: int) -> None:
        """Counts a session whose recording begins or ends."""
        if session is None:
            return
        with self._lock:
            self._sessions[session] += change
            self._sessions = +self._sessions

    def _forwarded(self, method: str, body: bytes, context: grpc.ServicerContext) -> bytes:
        """Returns the profiler's answer. Ends the recording when the call has ended or memory has run out."""
        call = _profiler().unary_unary(_SERVICE + method).future(body, timeout=context.time_remaining())
        if not context.add_callback(call.cancel):
            call.cancel()
        ended = threading.Event()
        call.add_done_callback(lambda _: ended.set())
        while not ended.wait(_LOOK_SECONDS):
            if self._budget.excess() > 0:
                call.cancel()
                context.abort(
                    grpc.StatusCode.RESOURCE_EXHAUSTED, "The server's memory has run out; record for a shorter time"
                )
        if call.code() is not grpc.StatusCode.OK:
            context.abort(call.code(), call.details())
        answer: bytes = call.result()
        return answer


def _has_a_place(folder: bytes) -> bool:
    """Returns whether a folder means the same to the server and the client: absolute, or in a store."""
    text = folder.decode("utf-8", "surrogateescape")
    return "://" in text or pathlib.PurePath(text).is_absolute()


@functools.cache
def _message_class(method: str) -> Any:
    """Returns a message class with the request fields that the server reads. TensorFlow has no Python class for it."""
    file = descriptor_pb2.FileDescriptorProto(name=f"ctrpipe/{method}.proto", package="ctrpipe.profiler")
    message, field = file.message_type.add(name=method), descriptor_pb2.FieldDescriptorProto
    for name, number in _FIELDS[method].items():
        kind = field.TYPE_BOOL if name in _FLAGS else field.TYPE_BYTES
        message.field.add(name=name, number=number, type=kind, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"ctrpipe.profiler.{method}"))


@functools.cache
def _profiler() -> grpc.Channel:
    """Returns a channel to the process's profiler. TensorFlow starts it once and never stops it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    tf.profiler.experimental.server.start(port)
    return grpc.insecure_channel(f"127.0.0.1:{port}", _NO_LIMIT)
