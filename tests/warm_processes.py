"""Starts processes of the tests with TensorFlow and TFX already imported, which takes an interpreter 3 to 7 s.

A worker of pytest-xdist forks itself once, when it has imported what its tests need and TensorFlow has no thread yet.
That copy is forked for each process that the worker starts by multiprocessing's method "spawn", and for each command of
`start_warm`. They have the environment, the working directory and the output of the moment that they are started at.
Outside pytest-xdist, and in the processes that such a process starts, "spawn" starts an interpreter as ever.
"""

import io
import logging
import multiprocessing.context
import multiprocessing.forkserver
import multiprocessing.popen_forkserver
import multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker
import multiprocessing.spawn
import multiprocessing.util
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, Any, NoReturn, Self

import psutil

_server: Any = multiprocessing.forkserver.ForkServer()
_owner: int | None = None  # the process that forked itself
counted: list[int] = []  # further processes that are forked, which this one waits for at its own end


def fork_server() -> None:
    """Forks this process into the one that is forked for each new process."""
    global _owner
    multiprocessing.resource_tracker.ensure_running()
    address = os.path.join(tempfile.mkdtemp(prefix="forks-"), "socket")  # the first process removes it, with all others
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        alive, keeps_alive = os.pipe()
        process = os.fork()
        if process == 0:
            _serve_forks(listener, alive)
    os.close(alive)
    _server._forkserver_address, _server._forkserver_alive_fd, _server._forkserver_pid = address, keeps_alive, process
    _owner = os.getpid()
    multiprocessing.context.SpawnProcess._Popen = staticmethod(_start)


def _serve_forks(listener: socket.socket, alive: int) -> NoReturn:
    try:
        # Files of the worker, which their other ends would take for open when the worker has ended.
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in map(int, os.listdir("/proc/self/fd")):
            if number > 2 and number not in (listener.fileno(), alive, nothing):
                os.dup2(nothing, number, inheritable=False)
        # pytest has put others in the place of these streams, and handlers of its own behind all loggers.
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))
        logging.getLogger().handlers.clear()
        tracker: Any = multiprocessing.resource_tracker._resource_tracker
        tracker._fd = tracker._pid = None
        multiprocessing.forkserver.main(listener.detach(), alive, [])
    finally:
        os._exit(0)


def children_seconds() -> float:
    """Returns the CPU time of the ended forks, and of the processes that are forked."""
    if _owner != os.getpid():
        return 0.0
    return sum(map(_seconds, [_server._forkserver_pid, *counted]))


def _seconds(process: int) -> float:
    try:
        used = psutil.Process(process).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return used.user + used.system + used.children_user + used.children_system


def _start(process: Any) -> Any:
    kind = _Fork if _owner == os.getpid() else multiprocessing.popen_spawn_posix.Popen
    return kind(process)


class _Fork(multiprocessing.popen_forkserver.Popen):
    """A fork of `_server`: what the base class starts, with this process's surroundings."""

    def _launch(self, process: Any) -> None:
        settings = multiprocessing.spawn.get_preparation_data(process._name)
        sent = io.BytesIO()
        multiprocessing.context.set_spawning_popen(self)
        try:
            for part in (settings, _InSurroundings(process)):
                multiprocessing.context.reduction.dump(part, sent)
        finally:
            multiprocessing.context.set_spawning_popen(None)
        self.sentinel, writer = _server.connect_to_new_process(self._fds)
        parent = os.dup(writer)
        closed = (parent, self.sentinel)
        self.finalizer = multiprocessing.util.Finalize(self, multiprocessing.util.close_fds, closed)
        with open(writer, "wb") as file:
            file.write(sent.getbuffer())
        self.pid = multiprocessing.forkserver.read_signed(self.sentinel)


class _InSurroundings:
    """A process object that restores the environment of the process that pickled it before it is unpickled."""

    def __init__(self, process: Any):
        self.process = process

    def __reduce__(self):
        return _second, (_Surroundings(), self.process)


class _Surroundings:
    def __reduce__(self):
        streams = [multiprocessing.context.reduction.DupFd(number) for number in (1, 2)]
        return _restore, (dict(os.environ), streams)


def _second(_first: None, process: Any) -> Any:
    return process


def _restore(environment: dict[str, str], streams: list) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, stream in enumerate(streams, 1):
        opened = stream.detach()
        os.dup2(opened, number)
        os.close(opened)


class WarmCommand:
    """`ctrpipe WORDS` in a process that multiprocessing starts, with the methods of subprocess.Popen that tests call.

    Attributes:
        pid: The process's id.
        stderr: What it writes to standard error; None where that goes nowhere.
    """

    def __init__(self, words: list[str], folder: pathlib.Path, environment: Mapping[str, str], stderr: int | IO[str]):
        self.stderr = None
        if not isinstance(stderr, int):
            write_end = os.dup(stderr.fileno())
        elif stderr == subprocess.PIPE:
            read_end, write_end = os.pipe()
            self.stderr = open(read_end)
        else:
            write_end = os.open(os.devnull, os.O_WRONLY)
        given = (words, str(folder), dict(environment), Stream(write_end))
        self._process = multiprocessing.get_context("spawn").Process(target=_run, args=given)
        self._process.start()
        os.close(write_end)
        self.pid: int = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the process. Raises subprocess.TimeoutExpired, as Popen.wait does."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("ctrpipe", timeout or 0.0)
        return self._process.exitcode

    def communicate(self, timeout: float | None = None) -> tuple[None, str]:
        """Returns None and its standard error; kills it after `timeout` seconds."""
        late = threading.Timer(timeout, self.kill) if timeout else None
        if late:
            late.start()
        try:
            said = self.stderr.read() if self.stderr else ""
            self.wait(timeout)
        finally:
            if late:
                late.cancel()
        return None, said

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error:
            self.kill()  # a test that has failed must not wait for a server that nobody ends
        self.wait()
        if self.stderr:
            self.stderr.close()


class Stream:
    """A file descriptor that travels to the process that is being started."""

    def __init__(self, number: int):
        self.number = number

    def __reduce__(self):
        return _detached, (multiprocessing.context.reduction.DupFd(self.number),)


def _detached(stream: Any) -> int:
    return stream.detach()


def _run(words: list[str], folder: str, environment: dict[str, str], errors: int) -> None:
    """Does what the command `ctrpipe` does; ends with its exit code."""
    os.dup2(errors, 2)
    os.close(errors)
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["ctrpipe", *words]

    from ctrpipe.pipeline.cli import main

    main(prog_name="ctrpipe")


def start_warm(
    *words: object, cwd: pathlib.Path | None = None, env: Mapping[str, str] | None = None, stderr: int | IO[str]
) -> WarmCommand:
    """Starts `ctrpipe WORDS` for tests that do not test its imports; its standard output is discarded.

    Args:
        words: The command's words.
        cwd: Its working directory; None for this process's.
        env: Its environment; None for this process's.
        stderr: subprocess.PIPE, subprocess.DEVNULL or a file.
    """
    return WarmCommand([str(word) for word in words], cwd or pathlib.Path.cwd(), env or os.environ, stderr)
