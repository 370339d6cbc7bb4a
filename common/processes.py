"""Start processes, and map a function over the parts of a log in parallel.

| function | purpose |
|---|---|
| `Workers.map` | maps a function over parts: in this process, in a process pool, or on a Beam runner |
| `fork_workers`, `end_forked_workers` | make the processes of the next pools start at once |
| `run_in_new_process` | one call whose memory, threads and settings must not remain in this process |
| `child_process` | a process that communicates over a pipe until the block ends |
| `start_command`, `stop_command` | another program |
| `end_with_parent` | called by a process that was started as a command |

Ctrl-C reaches only this process, which then ends the others. All of them except commands end with this process, even if
it is killed by SIGKILL. A command that calls `end_with_parent` does so too.
"""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import hmac
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import pathlib
import pickle
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from ctrpipe.common.beam_pipelines import as_in_a_program
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.files import write_bytes
from ctrpipe.common.memory import return_freed_memory

IDLE_START_SECONDS = 0.05  # until an idle process receives work
CPUINFO = pathlib.Path("/proc/cpuinfo")  # Linux only
JOB_SERVER_SECONDS = 10.0  # connection timeout of Beam's job server
# Error messages of the Flink and Spark clients, which the job server forwards.
_CLUSTER_GONE = re.compile(
    r"Connection refused|UnresolvedAddress|UnknownHost|Number of retries has been exhausted|Failed to submit job|"
    r"Could not connect to|All masters are unresponsive|SparkContext (was shut down|has been shutdown)"
)
PARENT_SECONDS = 1.0  # polling interval for the end of the parent, if the kernel does not signal it
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIGNATURE_BYTES = 32
_idle_pools: dict[int, concurrent.futures.ProcessPoolExecutor] = {}  # by size

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Workers:
    """Runs a function over the parts of a log, in processes on this machine or on a Beam runner.

    Args:
        most: Maximum number of processes. Short work, which would not pay for their start, uses one. None for one per
            core.
        beam_args: Arguments for Beam. If given, the work runs on the Beam runner that they name. Its workers must see
            the same files as this process.
        scratch: A folder for results, writable by Beam's workers. None for a temporary folder on this machine.
        processes: Exact number of processes, instead of `most`. 1 runs the work in this process.
    """

    most: int | None = None
    beam_args: tuple[str, ...] = ()
    scratch: pathlib.Path | None = None
    processes: int | None = None

    def to_json(self) -> str:
        """Returns this object as JSON, because TFX components take only strings."""
        scratch = str(self.scratch) if self.scratch else None
        return json.dumps({**dataclasses.asdict(self), "scratch": scratch})

    @classmethod
    def from_json(cls, text: str) -> "Workers":
        """Returns the object that `to_json` serialized."""
        values = json.loads(text)
        scratch = pathlib.Path(values["scratch"]) if values["scratch"] else None
        return cls(values["most"], tuple(values["beam_args"]), scratch, values["processes"])

    def map(
        self,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        seconds: float,
        start_seconds: float = 1.0,
        progress: Callable[[int], None] = lambda done: None,
        judge: Callable[[list[Result]], None] = lambda results: None,
        cores_alone: int = 1,
    ) -> list[Result]:
        """Returns the results of the function for all items, in order of the items.

        Args:
            function: The function. It must be picklable, as must items and results. It should write large results to
                files.
            items: The parts.
            seconds: Estimated time for all items in one process. Determines how many processes to start.
            start_seconds: Start-up time of a new process. Ignored if the pool's processes are forks.
            progress: Called with the number of completed items.
            judge: Called with the results of the first n items whenever n grows. May raise InputError to stop the
                work. Not called with Beam, which returns all results at the end.
            cores_alone: How many cores the function keeps busy in this process; a worker keeps one busy.

        Raises:
            InputError: the function or `judge` raised it.
        """
        if self.beam_args:
            return _by_beam(function, items, self.beam_args, self.scratch)
        most = self.most or cores()
        if most in _idle_pools:
            start_seconds = IDLE_START_SECONDS
        worth = _worth_starting(min(len(items), most), seconds, start_seconds, cores_alone)
        processes = min(len(items), self.processes or worth)
        if processes <= 1:
            results = []
            for item in items:
                results.append(function(item))
                progress(len(results))
                judge(results)
            return results
        # Forks are kept for later calls, which may need more of them.
        size = most if most in _idle_pools and self.processes is None else processes
        return _by_pool(function, items, size, progress, judge)


def fork_workers(module: str, processes: int) -> None:
    """Forks this process into the pool of the next `Workers.map` with at most `processes` processes.

    The forks have this process's imports, and import a module. They keep its open files until `end_forked_workers`.
    After a mistake, later pools are started as without this call.

    On two cores, the pipeline up to Transform of a million rows takes 14.0 s, and 19.2 s of CPU time, with forks, and
    15.5 and 21.5 s with processes that each pool starts.

    This process must not have a thread that may hold a lock which the module needs: a fork does not copy threads, so
    the lock would never be released. It must not use a GPU, which forks cannot share.
    """
    context = multiprocessing.get_context("fork")
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_start_fork, initargs=(module,))
    with _interrupts_blocked():
        pool.submit(os.getpid)  # the first call starts all forks, before the pool starts a thread
    _idle_pools[processes] = pool


def _start_fork(module: str) -> None:
    _follow_parent()
    importlib.import_module(module)


def _end_pool(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    """Terminates the processes of a pool immediately, without waiting for their work."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


def run_in_new_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Calls a function in a new process, ends the process, and returns the result.

    Raises:
        InputError: the function raised it.
    """
    context = multiprocessing.get_context("spawn")
    pool = concurrent.futures.ProcessPoolExecutor(1, context, initializer=_follow_parent)
    try:
        with _interrupts_blocked():
            future = pool.submit(function, *arguments)
        return future.result()
    finally:
        _end_pool(pool)


@contextlib.contextmanager
def child_process(function: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Runs `function(*arguments, connection)` in a new process until the block ends.

    Yields:
        This process's end of the connection.
    """
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_run_child, args=(function, arguments, theirs), daemon=True)
    with _interrupts_blocked():
        process.start()
    theirs.close()
    try:
        yield ours
    finally:
        ours.close()
        process.terminate()
        process.join()


def _run_child(function: Callable[..., None], arguments: tuple[object, ...], connection: Connection) -> None:
    _follow_parent()
    function(*arguments, connection)


def python_command(code: str, *arguments: str) -> list[str]:
    """Returns the command that runs Python code in a new process with the same import path as this process.

    The working directory and PYTHONPATH have no effect. With `python -c` or `python -m` alone, a user's file in the
    working directory could shadow a module of a library.

    Args:
        code: Statements to run. `sys` is imported.
        arguments: Arguments after `sys.argv[0]`.
    """
    places = json.dumps([place or os.getcwd() for place in sys.path])
    return [
        sys.executable,
        "-P",
        "-c",
        f"import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); {code}",
        places,
        *arguments,
    ]


def start_command(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Starts a program in a new session, out of reach of Ctrl-C in the terminal. `options` are passed to Popen."""
    return subprocess.Popen(command, start_new_session=True, **options)


def stop_command(process: "subprocess.Popen[Any]", seconds: float) -> None:
    """Sends SIGTERM to a program, and SIGKILL if it is still running after `seconds`."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_with_parent(parent: int | None = None) -> None:
    """Makes the kernel kill this process (SIGKILL) when the thread that started it ends.

    On systems without this feature, such as macOS, a thread of this process ends it soon after the parent process.

    Args:
        parent: The id of the parent process. If the parent has already ended, this process exits immediately.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux only
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(1)
    if prctl is None:
        threading.Thread(target=_exit_without, args=(os.getppid(),), daemon=True).start()


def _exit_without(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT in this block. Processes started in it keep it blocked; they would print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """Returns the number of cores that this process may use (on macOS, of all cores)."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def on_intel() -> bool:
    """Returns whether the CPU is made by Intel; False if unknown."""
    return CPUINFO.exists() and "GenuineIntel" in CPUINFO.read_text()


def multiplies_bfloat16() -> bool:
    """Returns whether the CPU can multiply bfloat16 (AVX-512 or AMX); False if unknown."""
    flags = set(CPUINFO.read_text().split()) if CPUINFO.exists() else set()
    return not flags.isdisjoint(("avx512_bf16", "amx_bf16"))


def _worth_starting(most: int, seconds: float, start_seconds: float, cores_alone: int) -> int:
    """Returns the number of processes that finish first: `most`, or 1 if this process alone is faster."""
    return most if most > 1 and start_seconds + cores_alone * seconds / most < seconds else 1


def _by_pool(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int,
    progress: Callable[[int], None],
    judge: Callable[[list[Result]], None],
) -> list[Result]:
    with _pool(processes) as pool:
        with _interrupts_blocked(), _main_hidden_from(function):
            futures = [pool.submit(_call_and_return_memory, function, item) for item in items]
        results: list[Result] = []
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            future.result()
            progress(done)
            while len(results) < len(items) and futures[len(results)].done():
                results.append(futures[len(results)].result())
                judge(results)
        return results


def _call_and_return_memory(function: Callable[[Item], Result], item: Item) -> Result:
    """Calls the function in a worker, and returns freed memory to the system: a worker may be idle for a long time."""
    try:
        return function(item)
    finally:
        return_freed_memory()


@contextlib.contextmanager
def _main_hidden_from(function: Callable[..., Any]) -> Iterator[None]:
    """Hides the main module from processes started in the block, unless the function is defined in it.

    A new process runs the main module again to find the function. A user's script without a `__main__` guard would call
    ctrpipe once more.
    """
    main = sys.modules["__main__"]
    if getattr(function, "__module__", None) != main.__name__:
        sys.modules["__main__"] = types.ModuleType(main.__name__)
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Yields a pool of at most `processes` processes.

    Forks are kept until `end_forked_workers`.
    """
    pool = _idle_pools.pop(processes, None)
    keep = pool is not None
    if pool is None:
        # Not forked from this process, which may have loaded TensorFlow: a fork does not copy its threads.
        context = multiprocessing.get_context("spawn")
        pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_follow_parent)
    try:
        yield pool
    except BaseException:
        _end_pool(pool)
        raise
    if keep:
        _idle_pools[processes] = pool
    else:
        pool.shutdown()


def end_forked_workers() -> None:
    """Ends the processes that `fork_workers` started, after their current work.

    Waits for them, so the system adds their CPU time to the children's time of this process.
    """
    while _idle_pools:
        _idle_pools.popitem()[1].shutdown()


def _follow_parent() -> None:
    """Ignores SIGINT, which the parent handles, and ends this process when the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _by_beam(
    function: Callable[[Item], Result], items: Sequence[Item], beam_args: tuple[str, ...], scratch: pathlib.Path | None
) -> list[Result]:
    require("pipeline", "work on Beam")
    # Lazy: takes 1.6 s of CPU time in every process, and is not needed without Beam arguments.
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

    with tempfile.TemporaryDirectory(prefix=".beam-", dir=scratch) as folder:
        # Beam's direct runner may download a binary unless its mode is in_memory. `beam_args` can override the mode.
        options = PipelineOptions(["--direct_running_mode=in_memory", *beam_args])
        _require_job_server(options.view_as(PortableOptions).job_endpoint)
        work = _ToFile(function, pathlib.Path(folder).absolute(), secrets.token_bytes(32), pathlib.Path.cwd())
        try:
            with as_in_a_program(), beam.Pipeline(options=options) as pipeline:
                _ = pipeline | beam.Create(list(enumerate(items)), reshuffle=True) | "Work" >> beam.Map(work)
        except Exception as error:
            if _CLUSTER_GONE.search(str(error)):
                reason = one_line(error, 300)
                raise InputError(
                    f"the job server does not reach its cluster: {reason}; start the cluster, or give the job server "
                    "its address, and run again"
                ) from error
            raise
        if work.mistake.exists():
            raise InputError(work.mistake.read_text())
        return [work.read(index) for index in range(len(items))]


def _require_job_server(endpoint: str | None) -> None:
    """Raises InputError if nothing listens at Beam's `--job_endpoint`. Beam itself would wait for minutes."""
    host, _, port = (endpoint or "").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), JOB_SERVER_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = one_line(error, 100)
        raise InputError(
            f"--job_endpoint={endpoint}: no job server answers ({reason}); start it, or correct the address"
        ) from error


@dataclasses.dataclass(frozen=True)
class _ToFile:
    """Calls the function for an item and writes the result, or the message of its InputError, to a file.

    The runner need not return anything. Many runners report the error of a job as text, from which an InputError cannot
    be restored. An InputError is not raised, because a cluster would repeat the work according to its restart strategy.
    The remaining items are skipped instead.

    Some results, such as TFDV's statistics, can only be pickled, and loading a pickle runs code. Others may have write
    access to the folder, so the files are signed with a key that is sent with the job and never stored in the folder.

    Workers change to the working directory of the command, so relative paths have the same meaning.
    """

    function: Callable[[Any], Any]
    folder: pathlib.Path
    key: bytes
    current: pathlib.Path

    @property
    def mistake(self) -> pathlib.Path:
        return self.folder / "mistake"

    def path(self, index: int) -> pathlib.Path:
        return self.folder / f"{index}.pickle"

    def __call__(self, numbered: tuple[int, object]) -> None:
        index, item = numbered
        if self.mistake.exists():
            return
        if self.current.is_dir():
            os.chdir(self.current)
        try:
            result = pickle.dumps(self.function(item))
        except InputError as error:
            write_bytes(self.mistake, str(error).encode())
            return
        write_bytes(self.path(index), self._sign(index, result) + result)

    def read(self, index: int) -> Any:
        """Returns the result of an item.

        Raises:
            InputError: the file was not written by this job.
        """
        path = self.path(index)
        signed = path.read_bytes()
        signature, result = signed[:_SIGNATURE_BYTES], signed[_SIGNATURE_BYTES:]
        if not hmac.compare_digest(signature, self._sign(index, result)):
            raise InputError(
                f"{path}: another program wrote to this file; keep others out of the folder, and run again"
            )
        return pickle.loads(result)

    def _sign(self, index: int, result: bytes) -> bytes:
        return hmac.digest(self.key, index.to_bytes(8, "big") + result, "sha256")
