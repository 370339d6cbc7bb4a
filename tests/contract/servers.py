"""The server that the contract is tested on.

By default this project's, in this process. CTRPIPE_CONTRACT_SERVER=/usr/bin/tensorflow_model_server tests that binary
with the same flags. CTRPIPE_CONTRACT_URL=http://HOST:PORT and CTRPIPE_CONTRACT_GRPC=HOST:PORT test a server that runs
already and serves the folder of `python -m tests.contract.models FOLDER` with the flags that it prints; tests that need
other flags are skipped.
"""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

from ctrpipe.serving.server.options import parse_flags
from ctrpipe.serving.server.run import Addresses, running_server

START_SECONDS = 60
BINARY = os.environ.get("CTRPIPE_CONTRACT_SERVER", "")
URL = os.environ.get("CTRPIPE_CONTRACT_URL", "").rstrip("/")
GRPC = os.environ.get("CTRPIPE_CONTRACT_GRPC", "")
IS_OURS = not (BINARY or URL)
OURS_ALONE = "ours alone"


def ours_alone(reason: str) -> pytest.MarkDecorator:
    """Marks a test of a promise that only this project's server keeps; the table of items says so."""
    return pytest.mark.skipif(not IS_OURS, reason=f"{OURS_ALONE}: {reason}")


@contextlib.contextmanager
def start(flags: list[str]) -> Iterator[Addresses]:
    """Yields a server with these flags on free ports; skips the test if none can be started."""
    if URL:
        pytest.skip("needs a server with flags of its own")
    if BINARY:
        with _binary(flags) as addresses:
            yield addresses
    else:
        with running_server(parse_flags(flags)) as addresses:
            yield addresses


@contextlib.contextmanager
def shared(flags: list[str]) -> Iterator[Addresses]:
    """Yields the server of most tests: `start`, or the server that is already running."""
    if URL:
        yield Addresses(URL, GRPC or None)
    else:
        with start(flags) as addresses:
            yield addresses


@contextlib.contextmanager
def _binary(flags: list[str]) -> Iterator[Addresses]:
    rest, grpc = free_port(), free_port()
    command = [BINARY, *flags, f"--rest_api_port={rest}", f"--port={grpc}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            _wait(process, rest)
            yield Addresses(f"http://127.0.0.1:{rest}", f"127.0.0.1:{grpc}")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)


def _wait(process: subprocess.Popen, port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"{BINARY} ended with {process.returncode}: {process.stderr.read()[-2000:]}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    pytest.fail(f"{pathlib.Path(BINARY).name} does not listen after {START_SECONDS} s")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
