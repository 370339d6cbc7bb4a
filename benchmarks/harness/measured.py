"""Runs a command and measures its time, and the CPU time and memory of the command and all its child processes.

A run announces its stages on stderr, so its time and memory are also reported by stage.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.peers.line_process import ProcessError, clean_environment

MARK = "CTRPIPE_MEASURED"
PROC = pathlib.Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
INTERVAL = 0.1
# To count the shared pages of a process, the kernel walks all its pages and blocks new mappings meanwhile. Ten reads a
# second took most of a core from the measured command.
LOOKS_PER_MEMORY = 5
LAST_WORDS = 2000
START = "start"  # the stage before the first one that is announced
SERVABLE = "Writing the servable"  # a part of a Trainer, announced by it
STAGE_LINE = re.compile(
    rf"^\[ *(?P<seconds>[\d.]+)s\] (?:(?P<stage>[A-Za-z.]+) \.\.\.|(?P<servable>{SERVABLE}))$", re.MULTILINE
)
START_NOISE = 0.1  # variation of the start-up time, as a share of the smaller run's time


@dataclasses.dataclass
class StageUsage:
    """The CPU time and the peak memory of all processes in a stage; see `Usage`."""

    cpu_seconds: float = 0.0
    peak_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Usage:
    """The time, memory and processes that a command used.

    Args:
        seconds: Wall time from start to end.
        cpu_seconds: CPU time of all its processes; each is read last at most INTERVAL before its end.
        peak_bytes: Peak memory of all its processes together, shared pages counted once; read every LOOKS_PER_MEMORY
            times INTERVAL.
        processes: Maximum number of simultaneous processes.
        stages: The CPU seconds and the peak memory by the stage that the command announced last, `start` before the
            first; empty if it announces none. The servable of a Trainer is a stage of its own, `Trainer, Writing the
            servable`.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    processes: int
    stages: dict[str, StageUsage] = dataclasses.field(default_factory=dict)


def marginal(small: tuple[int, Usage], large: tuple[int, Usage]) -> float | None:
    """Returns marginal rows/s between two runs, (rows, usage); None if the variation of the start-up time hides it."""
    longer = large[1].seconds - small[1].seconds
    return (large[0] - small[0]) / longer if longer > START_NOISE * small[1].seconds else None


class TimeIsOver(ProcessError):
    """Raised when a command exceeds its time limit."""


def run(
    name: str, command: Sequence[str | pathlib.Path], limit_seconds: float | None = None, **environment: str
) -> tuple[dict[str, Any], Usage]:
    """Runs a command to its end, and returns the JSON object on its last line of stdout and the command's usage.

    Args:
        name: The command's name in errors.
        command: The program and its arguments.
        limit_seconds: Time limit, after which the command and its child processes are killed; None: no limit.
        environment: Additional environment variables.

    Raises:
        ProcessError: The command failed or printed nothing.
        TimeIsOver: The command exceeded the time limit.
    """
    lines, usage = run_plain(name, command, limit_seconds, **environment)
    if not lines:
        raise ProcessError(f"{name} failed: it printed nothing")
    return json.loads(lines[-1]), usage


def run_plain(
    name: str, command: Sequence[str | pathlib.Path], limit_seconds: float | None = None, **environment: str
) -> tuple[list[str], Usage]:
    """Runs a command to its end, and returns its lines of stdout, which may be none, and its usage; see `run`."""
    mark = str(uuid.uuid4())
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        start = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=output, stderr=errors, env=clean_environment(**environment, **{MARK: mark})
        )
        try:
            with _watched(mark, _Announced(errors.fileno())) as seen:
                code = process.wait(limit_seconds)
                seconds = time.perf_counter() - start
        except subprocess.TimeoutExpired as error:
            raise TimeIsOver(f"{name} took longer than {limit_seconds:.0f} s") from error
        finally:
            for number in marked(mark):  # processes that outlive the command; after an interrupt, all its processes
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
            process.wait()
        output.seek(0)
        if code:
            errors.seek(0)
            raise ProcessError(f"{name} failed ({code}). Its last words:\n{errors.read()[-LAST_WORDS:]}")
        lines = output.read().splitlines()
    stages = seen.stages if seen.stages.keys() - {START} else {}
    return lines, Usage(seconds, sum(seen.ticks.values()) / TICKS, seen.peak_bytes, seen.processes, stages)


class _Announced:
    """The stage that a command announced last, in the file of its stderr.

    Args:
        file: The descriptor of the file. The command writes at its position, which stays where it is.
    """

    def __init__(self, file: int):
        self._file, self._read, self._trainer = file, 0, ""
        self._stage = START

    def stage(self) -> str:
        """Returns the stage of now."""
        new = os.pread(self._file, os.fstat(self._file).st_size - self._read, self._read)
        new = new[: new.rfind(b"\n") + 1]  # a line may be half written
        self._read += len(new)
        for line in STAGE_LINE.finditer(new.decode(errors="replace")):
            if line["stage"]:
                self._stage = self._trainer = line["stage"]
            else:
                self._stage = f"{self._trainer}, {SERVABLE}" if self._trainer else SERVABLE
        return self._stage


@dataclasses.dataclass
class _Seen:
    ticks: dict[int, int] = dataclasses.field(default_factory=dict)
    peak_bytes: int = 0
    processes: int = 0
    looks: int = 0
    stages: dict[str, StageUsage] = dataclasses.field(default_factory=dict)

    def look(self, mark: str, stage: str) -> None:
        numbers, of_stage = marked(mark), self.stages.setdefault(stage, StageUsage())
        for number in numbers:
            before = self.ticks.get(number, 0)
            self.ticks[number] = max(_ticks(number), before)
            of_stage.cpu_seconds += (self.ticks[number] - before) / TICKS
        self.processes = max(self.processes, len(numbers))
        if self.looks % LOOKS_PER_MEMORY == 0:
            used = sum(map(_bytes, numbers))
            self.peak_bytes, of_stage.peak_bytes = max(self.peak_bytes, used), max(of_stage.peak_bytes, used)
        self.looks += 1


@contextlib.contextmanager
def _watched(mark: str, announced: _Announced) -> Iterator[_Seen]:
    seen, ended = _Seen(), threading.Event()

    def watch() -> None:
        while not ended.wait(INTERVAL):
            seen.look(mark, announced.stage())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def marked(mark: str) -> list[int]:
    """Returns the ids of the processes with the mark in their environment, which child processes inherit.

    Following parent ids would miss some: a process whose parent ends gets another parent.
    """
    wanted, processes = f"{MARK}={mark}".encode(), []
    for folder in PROC.iterdir():
        if folder.name.isdigit() and wanted in _read(folder / "environ").split(b"\0"):
            processes.append(int(folder.name))
    return processes


def _ticks(number: int) -> int:
    """Returns the user and system ticks of a process without its children; 0 if it has ended."""
    fields = _read(PROC / str(number) / "stat").rpartition(b")")[2].split()  # a name may hold spaces
    return int(fields[11]) + int(fields[12]) if fields else 0


def _bytes(number: int) -> int:
    """Returns the resident bytes of a process, a page shared by n processes counted as 1/n; 0 if it has ended."""
    for line in _read(PROC / str(number) / "smaps_rollup").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _read(path: pathlib.Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the process has ended, or belongs to another user
        return b""
