"""The server under attack, and what is measured of it."""

import contextlib
import dataclasses
import pathlib
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

import psutil

from tests.fuzz.connection import Connection
from tests.fuzz.rest import ask_good
from tests.fuzz.server import Server

ASK_SECONDS = 0.01  # between the requests of a bystander


@dataclasses.dataclass(frozen=True)
class Measure:
    """One figure of an attack, and the most that it may be."""

    what: str
    value: float
    bound: float
    unit: str = ""

    @property
    def met(self) -> bool:
        return self.value <= self.bound

    def __str__(self) -> str:
        word = "ok" if self.met else "TOO MUCH"
        return f"{self.what}: {self.value:,.6g} {self.unit}".rstrip() + f" (at most {self.bound:,.6g}) {word}"


@dataclasses.dataclass(frozen=True)
class Target:
    """A server that serves tests.fuzz.servable.

    Attributes:
        server: Its addresses.
        long: Whether attacks have their full size, of minutes, or that of `make test`.
    """

    server: Server
    long: bool

    @property
    def rest(self) -> tuple[str, int]:
        return self.server.rest

    def connect(self) -> Connection:
        return Connection(self.rest)

    def take(self, long: float, short: float) -> int:
        """Returns the size of an attack."""
        return int(long if self.long else short)


Attack = Callable[[Target], list[Measure]]


class Bystander:
    """Another client, which asks right requests from entering to leaving, each over a connection of its own.

    Attributes:
        seconds: Of each of its answers.

    Raises:
        Fault: when the block ends, if one was wrong.
    """

    def __init__(self, target: Target):
        self.seconds: list[float] = []
        self._target = target
        self._stop = threading.Event()
        self._fault: BaseException | None = None
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def _ask(self) -> None:
        try:
            while not self._stop.wait(ASK_SECONDS):
                asked = time.perf_counter()
                ask_good(self._target.rest)
                self.seconds.append(time.perf_counter() - asked)
        except AssertionError as error:
            self._fault = error

    def __enter__(self) -> Self:
        self._thread.start()
        time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        if self._fault:
            raise self._fault

    def measures(self) -> list[Measure]:
        """Returns how long it waited: in the middle, and at most; the bounds leave room for a busy machine."""
        return [
            Measure("another client's median answer", 1e3 * statistics.median(self.seconds), 100, "ms"),
            Measure("another client's slowest answer", 1e3 * max(self.seconds), 1000, "ms"),
        ]


@dataclasses.dataclass
class Cost:
    """What a block took of the server; bytes only where it is a process of this machine."""

    seconds: float = 0.0
    peak_bytes: int | None = None


@contextlib.contextmanager
def costs(target: Target) -> Iterator[Cost]:
    """Measures a block: its time, and by how much the server's memory rose at most."""
    process = target.server.process
    before = _reset_peak(process) if process else 0
    cost, began = Cost(), time.perf_counter()
    yield cost
    cost.seconds = time.perf_counter() - began
    if process:
        cost.peak_bytes = max(0, _status(process, "VmHWM") - before)


def _reset_peak(process: psutil.Process) -> int:
    pathlib.Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return _status(process, "VmRSS")


def _status(process: psutil.Process, field: str) -> int:
    lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))
