"""A cluster on this machine, of any engine: its programs, Beam's job server and Beam's worker pool."""

import abc
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from typing import Any

from ctrpipe.common.processes import start_command, stop_command

ROOT = pathlib.Path(__file__).parents[2]
# What the engines' own start scripts set: Java 17 keeps these packages closed otherwise.
OPENED = [
    f"--add-{kind}={package}=ALL-UNNAMED"
    for kind, package in [
        ("exports", "java.base/sun.net.util"),
        ("exports", "java.security.jgss/sun.security.krb5"),
        *(("opens", f"java.base/java.{name}") for name in ("lang", "net", "io", "nio", "text", "time")),
        *(("opens", f"java.base/java.lang.{name}") for name in ("invoke", "reflect")),
        *(("opens", f"java.base/java.util{name}") for name in ("", ".concurrent", ".concurrent.atomic")),
        *(("opens", f"java.base/sun.{name}") for name in ("nio.ch", "nio.cs", "security.action", "util.calendar")),
    ]
]


class Cluster(abc.ABC):
    """A manager, workers, a job server and a worker pool, one process each, until `stop`.

    A worker is what Flink calls a task manager. Beam's pool gives each worker the Python processes of its slots.

    Args:
        folder: Where the processes log and keep what they need; a new one.
        workers: How many workers start.
        slots: How many parts of the work each worker does at a time, in a process each.
    """

    runner: str  # Beam's name of the engine's runner
    needs: str  # the engine and its Java, for a message
    make: str  # what downloads the jars
    jars: dict[str, tuple[pathlib.Path, str]]  # variable that names a folder -> the folder, and a jar that is in it

    def __init__(self, folder: pathlib.Path, workers: int, slots: int):
        self.folder, self.slots_each, self.workers = folder, slots, workers
        self.processes: dict[str, subprocess.Popen[Any]] = {}
        self.jobs, self.artifacts, self.expansion, self.pool = free_ports(4)
        folder.mkdir(parents=True)
        try:
            self.start_manager()
            for number in range(workers):
                self.start_worker(number)
            self.start_job_server()
            self._start("pool", {}, sys.executable, "-m", "tests.clusters.worker_pool", str(self.pool))
            self.wait(lambda: self.slots() == slots * workers, 90)
            for port in (self.jobs, self.pool):
                self.wait(lambda port=port: answers(port), 60)
        except BaseException:
            self.stop()
            raise

    @classmethod
    def missing(cls) -> str | None:
        """Returns why no cluster can be started here, or None."""
        if shutil.which("java") is None:
            return f"no java on the PATH: {cls.needs}"
        for variable, (folder, jar) in cls.jars.items():
            if not list(folder.glob(jar)):
                return f"no {jar} in {folder}: run `{cls.make}`, or set {variable}"
        return None

    @abc.abstractmethod
    def start_manager(self) -> None:
        """Starts the program that distributes the work."""

    @abc.abstractmethod
    def start_worker(self, number: int) -> None:
        """Starts the process `worker_<number>`."""

    @abc.abstractmethod
    def start_job_server(self) -> None:
        """Starts Beam's job server, which listens at `job_server_ports`."""

    @abc.abstractmethod
    def slots(self) -> int:
        """Returns the number of slots that the manager knows."""

    @abc.abstractmethod
    def ended_jobs(self) -> list[str]:
        """Returns the states of the jobs that have ended, in the engine's words."""

    @abc.abstractmethod
    def is_working(self) -> bool:
        """Returns whether a job has worked for some seconds."""

    def kill(self, name: str) -> None:
        """Ends a process and its children, like the loss of a machine."""
        process = self.processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def beam_args(self) -> list[str]:
        return [
            f"--runner={self.runner}",
            f"--job_endpoint=localhost:{self.jobs}",
            f"--artifact_endpoint=localhost:{self.artifacts}",
            "--environment_type=EXTERNAL",
            f"--environment_config=localhost:{self.pool}",
            f"--sdk_worker_parallelism={self.slots_each}",
        ]

    def job_server_ports(self) -> list[str]:
        ports = {"job": self.jobs, "artifact": self.artifacts, "expansion": self.expansion}
        told = [part for name, port in ports.items() for part in (f"--{name}-port", str(port))]
        return [*told, "--artifacts-dir", str(self.folder / "staged")]

    def wait(self, ready: Callable[[], bool], seconds: float) -> None:
        end = time.monotonic() + seconds
        while not ready():
            for name, process in self.processes.items():
                assert process.poll() is None, f"{name} ended; its log:\n{self.log(name)[-3000:]}"
            assert time.monotonic() < end, f"not ready after {seconds} s; logs in {self.folder}"
            time.sleep(0.2)

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            stop_command(process, 15)

    def java(self, name: str, heap_mb: int, class_path: str, environment: dict[str, str], *command: str) -> None:
        """Starts a Java program, by its class and arguments, behind options of Java."""
        self._start(name, environment, "java", f"-Xmx{heap_mb}m", *OPENED, "-cp", class_path, *command)

    def _start(self, name: str, environment: dict[str, str], *command: str) -> None:
        # Beam's pool starts its workers with the first `python` of the PATH.
        path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), **environment}
        with open(self.folder / f"{name}.log", "ab") as log:
            self.processes[name] = start_command(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def answer_of(port: int, path: str) -> Any:
    """Returns the JSON answer of a program on this machine; {} while it starts and gives none or another answer."""
    try:
        with urllib.request.urlopen(f"http://localhost:{port}/{path}", timeout=10) as answer:
            return json.load(answer)
    except (OSError, ValueError):
        return {}


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("localhost", 0)) for _ in range(number)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def answers(port: int) -> bool:
    try:
        socket.create_connection(("localhost", port), 1).close()
    except OSError:
        return False
    return True
