"""Starts the server: bound port, followed versions, uvicorn."""

import contextlib
import os
import pathlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import uvicorn

from serving.server.app import App
from serving.versions import VersionManager
from transforms.errors import InputError


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


def _server(manager: VersionManager, model_name: str, timeout_in_ms: int) -> uvicorn.Server:
    app = App(manager, model_name, timeout_in_ms / 1000, threads=4 * (os.cpu_count() or 1))
    config = uvicorn.Config(
        app, http="httptools", loop="uvloop", lifespan="off", log_level="error", access_log=False, ws="none"
    )
    return uvicorn.Server(config)


def _manager(model_base_path: str, poll_seconds: float) -> VersionManager:
    base = pathlib.Path(model_base_path)
    if not base.is_dir():
        raise InputError(f"{base}: no such folder; --model_base_path is the folder of a model's versions")
    return VersionManager(base, poll_seconds)


def serve(
    model_base_path: str,
    model_name: str,
    rest_api_port: int,
    rest_api_host: str = "127.0.0.1",
    file_system_poll_wait_seconds: float = 1.0,
    rest_api_timeout_in_ms: int = 30_000,
    ready: Callable[[int], None] | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM. Port 0 is any free one; `ready` is told which.

    Raises:
        InputError: the folder does not exist, or the port is in use.
    """
    manager = _manager(model_base_path, file_system_poll_wait_seconds)
    with contextlib.closing(_bind(rest_api_host, rest_api_port)) as listener:
        manager.start()
        if ready:
            ready(listener.getsockname()[1])
        try:
            _server(manager, model_name, rest_api_timeout_in_ms).run(sockets=[listener])
        except KeyboardInterrupt:
            pass
        finally:
            manager.stop()


@contextlib.contextmanager
def running_server(
    model_base_path: str, model_name: str, poll_seconds: float = 1.0, timeout_in_ms: int = 30_000
) -> Iterator[str]:
    """A server in a thread of this process, on a free port; yields its base URL."""
    manager = _manager(model_base_path, poll_seconds)
    with contextlib.closing(_bind("127.0.0.1", 0)) as listener:
        manager.start()
        server = _server(manager, model_name, timeout_in_ms)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(10)
            manager.stop()
