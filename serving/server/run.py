"""Starts the server: binds ports, loads models, runs REST and gRPC."""

import contextlib
import dataclasses
import errno
import logging
import pathlib
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import uvicorn

from ctrpipe.common.errors import InputError
from ctrpipe.common.interrupt import interrupt
from ctrpipe.common.stores import UnreachableError
from ctrpipe.serving.server.core import ServerCore
from ctrpipe.serving.server.grpc_server import GrpcServer
from ctrpipe.serving.server.open_files import raise_file_limit
from ctrpipe.serving.server.options import ServerOptions, with_found_folder
from ctrpipe.serving.server.rest import RestApi
from ctrpipe.serving.stored import is_awaited
from ctrpipe.serving.xla import xla_compilation

log = logging.getLogger(__name__)

# How long a stopping server answers its running requests, in seconds. serving/deploy allows for this time.
GRACE_SECONDS = 30.0
_LOOK_SECONDS = 1.0  # between looks for a base path that is not there yet
_NOT_OF_THIS_MACHINE = (errno.EADDRNOTAVAIL, errno.EINVAL)


@dataclasses.dataclass(frozen=True)
class Addresses:
    """A running server's addresses: `http://HOST:PORT` for REST, `HOST:PORT` for gRPC; None if it is off."""

    rest: str | None
    grpc: str | None


def _bind(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        is_host = isinstance(error, socket.gaierror) or getattr(error, "errno", 0) in _NOT_OF_THIS_MACHINE
        flag = "--host" if is_host else "--rest_api_port"
        raise InputError(f"Cannot listen on {host}:{port}: {reason}; choose another {flag}") from error
    return listener


def _rest_port(options: ServerOptions) -> int | None:
    if options.rest_api_port and options.rest_api_port == options.port:
        log.error("--rest_api_port cannot be same as --port. Skipped exporting HTTP/REST API.")  # R15
        return None
    return options.rest_api_port or None


@contextlib.contextmanager
def _serving(options: ServerOptions, rest_port: int | None, grpc_port: int | None) -> Iterator[Addresses]:
    """Runs a server in threads of this process. Port 0 selects a free port; None disables the API."""
    with contextlib.ExitStack() as stack:
        core = ServerCore(options)
        stack.callback(core.stop)
        listener = (
            None if rest_port is None else stack.enter_context(contextlib.closing(_bind(options.host, rest_port)))
        )
        grpc = GrpcServer(core, options, grpc_port)
        stack.callback(grpc.stop, 0)
        core.start()
        grpc.start()
        rest = _RestThread(RestApi(core, options, core.metrics).server(), listener) if listener else None
        stack.callback(_drain, rest, grpc)
        yield Addresses(_url(listener) if listener else None, grpc.address)


class _RestThread:
    """Runs uvicorn in its own thread. The constructor returns when the server accepts requests."""

    def __init__(self, server: uvicorn.Server, listener: socket.socket):
        self._server = server
        self._thread = threading.Thread(target=server.run, args=[[listener]], name="rest", daemon=True)
        self._thread.start()
        while not server.started:
            time.sleep(0.01)

    def stop(self) -> None:
        """Makes uvicorn finish its running requests and accept no new ones."""
        self._server.should_exit = True

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)


def _drain(rest: _RestThread | None, grpc: GrpcServer) -> None:
    """Stops accepting requests and waits up to GRACE_SECONDS for the running ones."""
    end = time.monotonic() + GRACE_SECONDS
    if rest:
        rest.stop()
    grpc.stop(GRACE_SECONDS)
    if rest:
        rest.wait(max(end - time.monotonic(), 0))


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def serve(options: ServerOptions, ready: Callable[[Addresses], None] | None = None) -> None:
    """Serves until SIGINT, SIGTERM or SIGHUP, then answers running requests for at most GRACE_SECONDS.

    Args:
        options: The server's flags.
        ready: Called with the addresses once the server accepts requests.

    Raises:
        InputError: the folder does not exist, a port is in use, or there is nothing to listen on.
    """
    rest_port, grpc_port = _rest_port(options), options.port or None
    if grpc_port is None and not options.grpc_socket_path and rest_port is None:
        raise InputError("--port and --rest_api_port are both 0: give a port for gRPC, for REST, or for both")
    raise_file_limit()
    xla = options.xla_cpu_compilation_enabled or options.xla_gpu_compilation_enabled
    with contextlib.suppress(KeyboardInterrupt), _terminating(), xla_compilation(xla):
        if options.wait:
            options = when_there(options)
        with _serving(options, rest_port, grpc_port) as addresses:
            if ready:
                ready(addresses)
            while True:
                time.sleep(1)  # in steps: a signal handled by another thread does not wake this one


def when_there(options: ServerOptions) -> ServerOptions:
    """Waits until something is at the model's base path, and returns the options as `with_found_folder` does.

    What appears may be a run, whose versions are in a folder below it. Waits without a time limit.
    """
    base = options.model_base_path
    if options.model_config_file is None and base is not None and _is_awaited_or_away(base):
        log.warning("%s: nothing to serve is there yet; waiting for it", base)
        while _is_awaited_or_away(base):
            time.sleep(_LOOK_SECONDS)
    return with_found_folder(options)


def _is_awaited_or_away(base: pathlib.Path | str) -> bool:
    try:
        return is_awaited(base)
    except UnreachableError as error:
        log.warning("%s", error)
        return True


@contextlib.contextmanager
def _terminating() -> Iterator[None]:
    """Inside the block, handles SIGTERM, and SIGHUP from a closed terminal, like Ctrl-C.

    Under nohup, SIGHUP stays ignored.
    """
    numbers = [signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def running_server(options: ServerOptions, rest_port: int = 0, grpc_port: int = 0) -> Iterator[Addresses]:
    """Runs a server in threads of this process, on the given ports instead of the options'; 0 = a free port.

    The XLA flags are ignored: they apply to the whole process, where other code may need XLA.
    """
    with _serving(options, rest_port, grpc_port) as addresses:
        yield addresses
