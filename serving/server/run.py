"""Starts the server: bound ports, models, uvicorn."""

import contextlib
import dataclasses
import socket
import threading
import time
from collections.abc import Callable, Iterator

import uvicorn

from serving.server.core import ServerCore
from serving.server.metrics import Metrics
from serving.server.options import ServerOptions
from serving.server.rest import RestApi
from transforms.errors import InputError


@dataclasses.dataclass(frozen=True)
class Addresses:
    """Where a running server answers: `http://HOST:PORT`, and `HOST:PORT` for gRPC; None where it does not."""

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
        raise InputError(f"Cannot listen on {host}:{port}: {reason}; choose another --rest_api_port") from error
    return listener


def _rest_server(core: ServerCore, options: ServerOptions) -> uvicorn.Server:
    return RestApi(core, options, Metrics()).server()


def _addresses(listener: socket.socket) -> Addresses:
    host, port = listener.getsockname()[:2]
    return Addresses(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}", None)


def serve(options: ServerOptions, ready: Callable[[Addresses], None] | None = None) -> None:
    """Serves until SIGINT or SIGTERM; `ready` is told where.

    Raises:
        InputError: the folder does not exist, or the port is in use.
    """
    core = ServerCore(options)
    with contextlib.closing(_bind(options.host, options.rest_api_port or 0)) as listener:
        core.start()
        if ready:
            ready(_addresses(listener))
        try:
            _rest_server(core, options).run(sockets=[listener])
        except KeyboardInterrupt:
            pass
        finally:
            core.stop()


@contextlib.contextmanager
def running_server(options: ServerOptions) -> Iterator[Addresses]:
    """A server in threads of this process, on free ports, whatever ports the options name."""
    core = ServerCore(options)
    with contextlib.closing(_bind(options.host, 0)) as listener:
        core.start()
        server = _rest_server(core, options)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield _addresses(listener)
        finally:
            server.should_exit = True
            thread.join(10)
            core.stop()
