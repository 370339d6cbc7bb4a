"""The server under test: `ctrpipe serve` in a separate process, watched from outside."""

import contextlib
import dataclasses
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence

import httpx
import psutil

from ctrpipe.pipeline.commands.bench import SERVE
from tests.contract.servers import free_port
from tests.warm_processes import start_warm

NAME = "ctr"  # of the model under test
START_SECONDS, STOP_SECONDS = 120.0, 30.0
_WORDS_OF_A_FAULT = ("Traceback", "Exception ignored", "Fatal Python error", "Task exception was never retrieved")


class Broken(AssertionError):
    """The server ended, or its log contains a traceback."""


@dataclasses.dataclass(frozen=True)
class Usage:
    """Resources of the server's process; memory is resident and private."""

    megabytes: float
    threads: int
    files: int  # with sockets

    def __str__(self) -> str:
        return f"{self.megabytes:.0f} MB, {self.threads} threads, {self.files} files and sockets"


class Server:
    """The addresses of a server, and the process and log of our own.

    Attributes:
        rest: HOST, PORT of its REST API.
        grpc: HOST:PORT of its gRPC API, or None.
        process: Of a server that is ours.
    """

    def __init__(
        self,
        rest: tuple[str, int],
        grpc: str | None,
        process: psutil.Process | None = None,
        log: pathlib.Path | None = None,
    ):
        self.rest = rest
        self.grpc = grpc
        self.process = process
        self._log = log

    @property
    def url(self) -> str:
        return f"http://{self.rest[0]}:{self.rest[1]}"

    def usage(self) -> Usage | None:
        """None for a server that is not ours."""
        if not self.process:
            return None
        with self.process.oneshot():
            memory = self.process.memory_info()
            # Pages of files (the libraries) come and go with what else the machine does.
            return Usage((memory.rss - memory.shared) / 1e6, self.process.num_threads(), self.process.num_fds())

    def check(self) -> None:
        """Raises Broken: it has ended, or has written a traceback."""
        if not self.process or not self._log:
            return
        text = self._log.read_text(errors="replace")
        if not self.process.is_running() or self.process.status() == psutil.STATUS_ZOMBIE:
            raise Broken(f"the server ended; its last lines: {text[-2000:]}")
        for word in _WORDS_OF_A_FAULT:
            if word in text:
                at = text.index(word)
                raise Broken(f"in the server's log: {text[max(0, at - 500) : at + 3000]}")


def external(url: str, grpc: str | None) -> Server:
    """Returns a running server: its answers are checked, its process is not watched."""
    parts = httpx.URL(url)
    return Server((parts.host, parts.port or 80), grpc)


@contextlib.contextmanager
def started(models: pathlib.Path, flags: Sequence[str] = (), files: int = 0) -> Iterator[Server]:
    """Serves MODELS/ctr on free ports until the block ends.

    Args:
        models: The folder of the models.
        flags: Of the server.
        files: That the process may have open; 0 = as many as this one.

    Raises:
        Broken: it ends, or has no version in time, or does not stop.
    """
    rest, rpc = free_port(), free_port()
    own = [f"--rest_api_port={rest}", f"--port={rpc}", f"--model_name={NAME}", f"--model_base_path={models / NAME}"]
    is_warm = "PYTEST_XDIST_WORKER" in os.environ and not files
    command = [*SERVE, *own, *flags]
    if files:
        command = ["sh", "-c", f'ulimit -n {files} && exec "$0" "$@"', *command]
    with tempfile.TemporaryDirectory() as folder:
        log = pathlib.Path(folder) / "log"
        with log.open("w") as file:
            running = (
                start_warm("serve", *own, *flags, stderr=file)
                if is_warm
                else subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
            )
        server = Server(("127.0.0.1", rest), f"127.0.0.1:{rpc}", psutil.Process(running.pid), log)
        try:
            wait_for_version(server)
            yield server
            server.check()
        finally:
            running.terminate()
            try:
                running.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired as error:
                running.kill()
                running.wait()
                raise Broken(f"the server did not stop within {STOP_SECONDS:.0f} s of SIGTERM") from error


def wait_for_version(server: Server, version: int | None = None) -> None:
    """Waits until any version, or this one, is available. Raises Broken."""
    path = f"{server.url}/v1/models/{NAME}" + (f"/versions/{version}" if version else "")
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        server.check()
        with contextlib.suppress(httpx.TransportError):
            if '"AVAILABLE"' in httpx.get(path, trust_env=False).text:
                return
        time.sleep(0.1)
    raise Broken(f"no version is available after {START_SECONDS:.0f} s")
