"""The gRPC server: its ports, credentials, threads and limits (contract G1)."""

import concurrent.futures
import contextlib
import functools
import logging
import pathlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from ctrpipe.common.errors import InputError
from ctrpipe.serving.server.admission import Slots
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.core import ServerCore
from ctrpipe.serving.server.errors import OnError, ServingError
from ctrpipe.serving.server.grpc_api import Answer, GrpcApi
from ctrpipe.serving.server.grpc_arrivals import MOST_WAITING, Arrivals
from ctrpipe.serving.server.grpc_health import Health
from ctrpipe.serving.server.grpc_messages import check_examples, check_message, plain_message, plain_size
from ctrpipe.serving.server.grpc_parsing import parse
from ctrpipe.serving.server.open_files import most_files
from ctrpipe.serving.server.options import ServerOptions
from ctrpipe.serving.server.profiler import ProfilerHandler
from ctrpipe.serving.server.reload_guard import is_loopback
from ctrpipe.serving.text_proto import read_text_proto

log = logging.getLogger(__name__)

_NO_LIMIT = 2**31 - 1
# Calls of one connection at the same time; a client of gRPC keeps others back until one of them has ended.
_MOST_STREAMS = 100
# Parts of the process's files and of its memory that connections have; one with a call takes so many bytes.
_FILES_SHARE, _MEMORY_SHARE, _CONNECTION_BYTES, _FEWEST_CONNECTIONS = 4, 32, 64 << 10, 8
# A connection that says nothing, or has no call, takes one of the process's files. A client of gRPC opens another one
# with its next call.
_HANDSHAKE_MILLISECONDS, _IDLE_MILLISECONDS = 10_000, 300_000
# Calls that have their message and wait until one of those that run has ended.
_MOST_QUEUED = 256
# Calls that wait for a thread which reads their message; above them a call is RESOURCE_EXHAUSTED before it is read.
_MOST_UNREAD = 4096
# TF Serving's words where no thread is free for a call (G12), and where it cuts a message (G10).
_EXHAUSTED = "Server Threadpool Exhausted"
_MESSAGE_BYTES = 1024
_CUT = b"...TRUNCATED"
# The health service knows the services by these names in TF Serving, and by their full ones here as well.
_SHORT_NAMES = ("ModelService", "PredictionService")
# How long a server that ends waits for the messages of calls that have begun.
_ARRIVAL_SECONDS = 2.0
# How often it then looks for a call that runs, and how often none may have run before it closes the connections.
_LOOK_SECONDS, _LOOKS = 0.1, 3
# Without a deadline from the client, gRPC sets one in the far future.
_FOREVER_SECONDS = 10 * 365 * 86400


class GrpcServer:
    """A gRPC server. It listens from construction on, and answers after `start`.

    Args:
        core: The served models.
        options: The server's flags.
        port: Port on `options.host`; 0 = a free port, None = only the UNIX socket of the options.

    Attributes:
        address: HOST:PORT; None if the server listens only on a socket.

    Raises:
        InputError: the port is in use, or the TLS configuration has a mistake.
    """

    def __init__(self, core: ServerCore, options: ServerOptions, port: int | None):
        api = GrpcApi(core, options)
        self._budget, self._admission = core.budget, core.admission
        self._arrivals = Arrivals(core.budget)
        self._health = Health(["", *_SHORT_NAMES, *api.methods], self._arrivals)
        # One thread of TF Serving's always waits for the next call.
        self._places = threading.Semaphore(max(options.grpc_max_threads - 1, 1) + options.grpc_max_queued_calls)
        self._slots = Slots(options.grpc_max_threads, self._places)
        self._most_bytes = options.max_request_bytes
        threads = options.grpc_max_threads + MOST_WAITING + max(options.grpc_max_queued_calls, _MOST_QUEUED)
        self._pool = concurrent.futures.ThreadPoolExecutor(threads, "grpc")
        self._server = grpc.server(
            self._pool,
            options=_channel_arguments(options.grpc_channel_arguments, options.max_request_bytes, self._budget),
            maximum_concurrent_rpcs=threads + _MOST_UNREAD,
        )
        for service, methods in api.methods.items():
            handlers = {name: self._handler(*method) for name, method in methods.items()}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        is_local = port is None or is_loopback(options.host)
        if options.enable_profiler and (is_local or options.allow_profiler_from_network):
            self._server.add_generic_rpc_handlers((ProfilerHandler(self._arrivals, core.budget),))
        if options.enable_grpc_healthcheck_service:
            self._server.add_generic_rpc_handlers((self._health.handler(),))
        self.address = None if port is None else self._listen(options, port)
        if options.grpc_socket_path:
            self._bind(f"unix:{options.grpc_socket_path}", None, "choose another --grpc_socket_path")

    def _listen(self, options: ServerOptions, port: int) -> str:
        host = f"[{options.host}]" if ":" in options.host else options.host
        bound = self._bind(f"{host}:{port}", _credentials(options.ssl_config_file), "choose another --port or --host")
        return f"{host}:{bound}"

    def _bind(self, address: str, credentials: grpc.ServerCredentials | None, advice: str) -> int:
        try:
            if credentials is None:
                return int(self._server.add_insecure_port(address))
            return int(self._server.add_secure_port(address, credentials))
        except RuntimeError as error:
            raise InputError(f"Cannot listen on {address} for gRPC; {advice}") from error

    def _handler(self, request_class: Any, answer: Answer) -> grpc.RpcMethodHandler:
        """Returns the handler of a method. It handles a stream, to control how it waits for the message."""

        def respond(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            body = self._arrivals.message(requests, context)
            aborting = OnError(functools.partial(_abort, context, request_class))
            with self._arrivals.taking(context, len(body)), self._place(context):
                with aborting, self._budget.hold(len(body)) as held, self._slots:
                    if not context.is_active():  # its deadline has passed in the queue
                        return b""
                    size = plain_size(body, self._most_bytes)
                    with self._admission.reading(size, _seconds_left(context)) as reading:
                        with self._admission.parsing(size, _seconds_left(context)):
                            body = plain_message(body, self._most_bytes, held)
                            held.grow(check_message(body))
                            request, contents = parse(request_class, body)
                        del body
                        held.grow(check_examples(request))
                        reading.weigh(held.size, _seconds_left(context))
                        response = bytes(answer(request, contents, _seconds_left(context)).SerializeToString())
                    self._arrivals.answered(context, len(response))
                    return response
            raise AssertionError("abort raises")

        return grpc.stream_unary_rpc_method_handler(respond)

    @contextlib.contextmanager
    def _place(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Holds a place among the running and waiting calls inside the block; refuses the call if none is free."""
        if not self._places.acquire(blocking=False):
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _EXHAUSTED)
        try:
            with self._arrivals.running():
                yield
        finally:
            self._places.release()

    def start(self) -> None:
        self._arrivals.start()
        self._server.start()

    def stop(self, grace_seconds: float) -> None:
        """Stops accepting requests and waits up to `grace_seconds` for running ones; later ones are dropped.

        Clients receive GOAWAY, and running calls are answered. A call without a message has only _ARRIVAL_SECONDS left.
        Health watchers are told that the server stops. A connection without a call is then closed, because gRPC would
        wait the whole grace period for a vanished client.
        """
        stopped = self._server.stop(grace_seconds)
        self._health.end()
        if not stopped.wait(min(grace_seconds, _ARRIVAL_SECONDS)):
            self._arrivals.cancel_all()
        idle = 0
        while not stopped.wait(_LOOK_SECONDS):
            idle = idle + 1 if self._arrivals.is_idle() else 0
            if idle == _LOOKS:
                self._server.stop(0)
        self._arrivals.close()
        self._pool.shutdown(wait=False)


def _abort(context: grpc.ServicerContext, request_class: Any, error: Exception) -> None:
    """Ends the call with the status and message of an error."""
    if isinstance(error, ServingError):
        code, message = grpc.StatusCode[error.code], error.message or ""
    elif isinstance(error, DecodeError):
        code, message = grpc.StatusCode.INTERNAL, f"The request is no {request_class.__name__}: {error}"
    else:
        log.error("%s failed", request_class.__name__, exc_info=error)
        code, message = grpc.StatusCode.INTERNAL, f"{type(error).__name__}: {error}"
    context.abort(code, _cut(message))


def _cut(message: str) -> bytes:
    """Truncates a message as TF Serving does (G10), because clients refuse a message of more than a few kilobytes."""
    data = message[: _MESSAGE_BYTES + 1].encode("utf-8", "surrogateescape")  # of a text of megabytes too
    return data if len(data) <= _MESSAGE_BYTES else data[:_MESSAGE_BYTES] + _CUT


def _seconds_left(context: grpc.ServicerContext) -> float | None:
    left = context.time_remaining()
    return None if left is None or left > _FOREVER_SECONDS else left


def _channel_arguments(flag: str, most_bytes: int, budget: Budget) -> list[tuple[str, Any]]:
    """Returns gRPC's channel arguments: no decompression, no port sharing, few calls per connection, and the flag's
    own.

    gRPC refuses a too long message by its length before it arrives, and closes excess connections.

    Raises:
        InputError: the flag is not KEY=VALUE,...
    """
    fit = max(budget.max_memory // _MEMORY_SHARE // _CONNECTION_BYTES, _FEWEST_CONNECTIONS)
    connections = min(most_files() // _FILES_SHARE, fit)
    arguments: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", min(most_bytes, _NO_LIMIT)),
        ("grpc.per_message_decompression", 0),  # see grpc_messages.py
        ("grpc.max_send_message_length", _NO_LIMIT),
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", _MOST_STREAMS),
        ("grpc.max_allowed_incoming_connections", min(connections, _NO_LIMIT)),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MILLISECONDS),
        ("grpc.max_connection_idle_ms", _IDLE_MILLISECONDS),
    ]
    for pair in filter(None, flag.split(",")):
        key, separator, value = pair.partition("=")
        if not separator:
            raise InputError(f"--grpc_channel_arguments: {pair} is not KEY=VALUE")
        arguments.append((key, int(value) if value.lstrip("-").isdecimal() else value))
    return arguments


def _ssl_config() -> Any:
    """Returns an empty message equivalent to TF Serving's SSLConfig. tensorflow-serving-api has no such class."""
    file = descriptor_pb2.FileDescriptorProto(name="ctrpipe/ssl_config.proto", package="tensorflow.serving")
    message, field = file.message_type.add(name="SSLConfig"), descriptor_pb2.FieldDescriptorProto
    for number, name in enumerate(("server_key", "server_cert", "custom_ca"), 1):
        message.field.add(name=name, number=number, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    message.field.add(name="client_verify", number=4, type=field.TYPE_BOOL, label=field.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.serving.SSLConfig"))()


def _credentials(file: pathlib.Path | None) -> grpc.ServerCredentials | None:
    if file is None:
        return None
    config = read_text_proto(file, _ssl_config())
    if not config.server_key or not config.server_cert:
        raise InputError(f"{file}: server_key and server_cert hold PEM texts; one is empty")
    if config.client_verify and not config.custom_ca:
        raise InputError(f"{file}: client_verify needs custom_ca, the PEM text of the authority that signs clients")
    return grpc.ssl_server_credentials(
        [(config.server_key.encode(), config.server_cert.encode())],
        root_certificates=config.custom_ca.encode() or None,
        require_client_auth=config.client_verify,
    )
