"""Every way to start a process, and one function over many parts of a log.

| what | for |
|---|---|
| `Workers.map` | a function over parts: here, in a pool of processes, or on a Beam runner |
| `preload`, `preload_in_copy`, `end_preloaded` | makes the pools' processes start at once |
| `forked_pool`, `end_pool` | copies of this process, while it has no threads yet |
| `run_in_new_process` | one call whose memory, threads and settings must not stay in this process |
| `child_process` | a process that answers over a pipe until the block ends |
| `start_command`, `stop_command` | another program |
| `end_with_parent` | called by a process that another one started as a command |

Ctrl-C reaches this process alone, which then ends the others. All but commands end with this one, even if it is killed
by SIGKILL; so does a command that calls `end_with_parent`.
"""

import concurrent.futures
import contextlib
import ctypes
import dataclasses
import hmac
import json
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import pathlib
import pickle
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, NoReturn, TypeVar

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.files import write_bytes

IDLE_START_SECONDS = 0.05  # for a process that waits for work to get it
PRELOADED_START_SECONDS = 0.5  # for a copy of a preloaded process to start and to reach full speed
CPUINFO = pathlib.Path("/proc/cpuinfo")  # of Linux
JOB_SERVER_SECONDS = 10.0  # for Beam's job server to accept a connection
# What Flink's and Spark's clients say in the job server, which hands it on.
_CLUSTER_GONE = re.compile(
    r"Connection refused|UnresolvedAddress|UnknownHost|Number of retries has been exhausted|Failed to submit job|"
    r"Could not connect to|All masters are unresponsive|SparkContext (was shut down|has been shutdown)"
)
PARENT_SECONDS = 1.0  # between two looks at whether the parent lives, where the kernel does not tell its end
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIGNATURE_BYTES = 32
_preloaded = False
_idle_pools: dict[int, concurrent.futures.ProcessPoolExecutor] = {}  # by size

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Workers:
    """What runs a function over the parts of a log: processes of this machine, or a Beam runner.

    Args:
        most: Largest number of processes; fewer start where the work is too short to pay for their start. None for one
            per core.
        beam_args: Arguments for Beam. If there are any, Beam runs the work, on the runner that they name; its workers
            must see the same files as this process.
        scratch: A folder for the results that Beam's workers can write to; None for a temporary one of this machine.
        processes: Exact number of processes, in place of `most`; 1 runs the work in this process.
    """

    most: int | None = None
    beam_args: tuple[str, ...] = ()
    scratch: pathlib.Path | None = None
    processes: int | None = None

    def to_json(self) -> str:
        """Returns this object as JSON: a TFX component takes strings only."""
        scratch = str(self.scratch) if self.scratch else None
        return json.dumps({**dataclasses.asdict(self), "scratch": scratch})

    @classmethod
    def from_json(cls, text: str) -> "Workers":
        """Returns what `to_json` wrote."""
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
    ) -> list[Result]:
        """Returns the function's result for each item, in the order of the items.

        Args:
            function: Can be pickled, as can items and results; writes large results to files.
            items: The parts.
            seconds: Estimate of the time that all items take in one process. Decides how many processes to start.
            start_seconds: Time that a new process takes before its first item, where `preload` was not called.
            progress: Called with the number of items that are done.
            judge: Called with the results of the first items each time one more is complete; it may raise InputError
                to end the work. Beam does not call it: it returns all results at the end.

        Raises:
            InputError: the function or `judge` raised it.
        """
        if self.beam_args:
            return _by_beam(function, items, self.beam_args, self.scratch)
        most = self.most or cores()
        if _preloaded:
            start_seconds = IDLE_START_SECONDS if most in _idle_pools else PRELOADED_START_SECONDS
        processes = min(len(items), self.processes or _worth_starting(min(len(items), most), seconds, start_seconds))
        if processes <= 1:
            results = []
            for item in items:
                results.append(function(item))
                progress(len(results))
                judge(results)
            return results
        # Copies of a preloaded process start only when they are needed and are kept for later calls, which may need
        # more.
        size = most if _preloaded and self.processes is None else processes
        return _by_pool(function, items, size, progress, judge)


def preload(module: str) -> None:
    """Starts a process that imports a module; the processes of later pools are forks of it, which start at once.

    Returns before the import is complete. The module must not start a thread: a fork has no copies of threads.
    """
    global _preloaded
    multiprocessing.forkserver.set_forkserver_preload([module])
    multiprocessing.resource_tracker.ensure_running()  # its start unblocks SIGINT, so it goes first
    with _interrupts_blocked():
        multiprocessing.forkserver.ensure_running()
    _preloaded = True


def preload_in_copy(module: str) -> None:
    """As `preload`, in a copy of this process, which does not import again what this one has imported.

    This process must not have started a thread that could hold a lock of what the module imports or does: a fork has
    no copies of threads, and such a lock would stay held. A GPU must not be in use, which no fork can share.
    """
    global _preloaded
    multiprocessing.resource_tracker.ensure_running()  # see preload
    address = multiprocessing.connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined]
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        os.chmod(address, 0o600)
        listener.listen()
        alive, keeps_alive = os.pipe()
        with _interrupts_blocked():
            process = os.fork()
        if process == 0:
            _serve_forks(module, listener, alive)
    os.close(alive)
    server: Any = multiprocessing.forkserver._forkserver
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, keeps_alive, process
    _preloaded = True


def _serve_forks(module: str, listener: socket.socket, alive: int) -> NoReturn:
    """Runs Python's fork server in this process, a fork, until the write end of the pipe `alive` is closed."""
    code = 1
    try:
        _forget_files({listener.fileno(), alive})
        # As in a server of Python's own. The first process, when it ends, waits for its tracker (since Python 3.12),
        # and the tracker for all that have its pipe open; this server waits for the first process.
        tracker: Any = multiprocessing.resource_tracker._resource_tracker
        tracker._fd = tracker._pid = None
        multiprocessing.forkserver.main(listener.detach(), alive, [module])
    except SystemExit:
        code = 0
    finally:
        os._exit(code)


def _forget_files(but: set[int]) -> None:
    """Turns all open files but these and the standard streams into /dev/null.

    They are the files of the process that this one was copied from: its locks and pipes would stay open after its end.
    Their numbers stay taken, so that no object that still holds one closes another file by it.
    """
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > 2 and number not in {*but, nothing}:
            os.dup2(nothing, number, inheritable=False)


def forked_pool(processes: int, folder: pathlib.Path, niceness: int = 0) -> concurrent.futures.ProcessPoolExecutor:
    """Returns a pool of forks of this process, made at once; end it with `end_pool`.

    This process must not have started a thread: a fork has no copies of threads.

    Args:
        processes: Number of forks.
        folder: The folder that they write to; they remove it when this process is killed.
        niceness: What is added to their niceness: the system prefers processes of a lower one.
    """
    context = multiprocessing.get_context("fork")
    settings = (folder, niceness)
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_follow_parent, initargs=settings)
    with _interrupts_blocked():
        pool.submit(os.getpid)  # a pool forks when it gets its first task
    return pool


def end_pool(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    """Ends a pool's processes at once, with the work that they are doing."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


def run_in_new_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Calls a function in a new process, which then ends, and returns its result.

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
        end_pool(pool)


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
    """Returns the command that runs Python code in a process of its own, which imports from where this process does.

    Neither the working directory nor PYTHONPATH decides what it imports: `python -c` and `python -m` would take a file
    of the user's, named as one of a library's, from the working directory, which this process may not look in at all.

    Args:
        code: Statements; `sys` is imported.
        arguments: They follow `sys.argv[0]`.
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
    """Starts a program in a session of its own, which Ctrl-C in the terminal does not reach; `options` are Popen's."""
    return subprocess.Popen(command, start_new_session=True, **options)


def stop_command(process: "subprocess.Popen[Any]", seconds: float) -> None:
    """Sends SIGTERM to a program, and SIGKILL if it has not ended after `seconds`."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def end_with_parent(parent: int | None = None) -> None:
    """Has the kernel end this process by SIGKILL when the thread that started it ends.

    Where the kernel does not do that, as that of macOS, a thread of this process ends it soon after the other process.

    Args:
        parent: The id of the process that started this one, which ends at once if that one has ended already.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # Linux's
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
    """Blocks SIGINT in this block, and for good in processes that start in it, which would print a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """Returns the number of cores that this process may use; where the system does not say which, as macOS, of all."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux's
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def on_intel() -> bool:
    """Returns whether the processor says that it is Intel's; False where the system does not say."""
    return CPUINFO.exists() and "GenuineIntel" in CPUINFO.read_text()


def multiplies_bfloat16() -> bool:
    """Returns whether the processor says that it multiplies bfloat16 (AVX-512 or AMX); False where it says nothing."""
    flags = set(CPUINFO.read_text().split()) if CPUINFO.exists() else set()
    return not flags.isdisjoint(("avx512_bf16", "amx_bf16"))


def _worth_starting(most: int, seconds: float, start_seconds: float) -> int:
    """Returns how many processes finish first: `most`, or 1, which needs no start, where the work is short."""
    return most if most > 1 and start_seconds + seconds / most < seconds else 1


def _by_pool(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    processes: int,
    progress: Callable[[int], None],
    judge: Callable[[list[Result]], None],
) -> list[Result]:
    with _pool(processes) as pool:
        futures = [pool.submit(function, item) for item in items]
        results: list[Result] = []
        for done, future in enumerate(concurrent.futures.as_completed(futures), 1):
            future.result()
            progress(done)
            while len(results) < len(items) and futures[len(results)].done():
                results.append(futures[len(results)].result())
                judge(results)
        return results


@contextlib.contextmanager
def _pool(processes: int) -> Iterator[concurrent.futures.ProcessPoolExecutor]:
    """Yields a pool of at most `processes` processes. Copies of a preloaded one are kept until `end_idle_pools`."""
    pool = _idle_pools.pop(processes, None)
    if pool is None:
        # Not forked from this process, which may have loaded TensorFlow: a fork has no copies of its threads.
        context = multiprocessing.get_context("forkserver" if _preloaded else "spawn")
        pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_follow_parent)
    try:
        yield pool
    except BaseException:
        end_pool(pool)
        raise
    if _preloaded:
        _idle_pools[processes] = pool
    else:
        pool.shutdown()


def end_idle_pools() -> None:
    """Ends the processes that are kept for the next `Workers.map`."""
    while _idle_pools:
        _idle_pools.popitem()[1].shutdown()


def end_preloaded() -> None:
    """Ends the process that `preload` started, and its copies, once they have no work.

    Waits for them, so that the system counts their CPU time as that of this process's children.
    """
    global _preloaded
    end_idle_pools()
    multiprocessing.forkserver._forkserver._stop()  # type: ignore[attr-defined]
    _preloaded = False


def _follow_parent(folder: pathlib.Path | None = None, niceness: int = 0) -> None:
    """Ignores SIGINT, which the parent handles; when the parent ends, removes the folder and ends this process."""
    os.nice(niceness)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(folder,), daemon=True).start()


def _exit_with_parent(folder: pathlib.Path | None) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def _by_beam(
    function: Callable[[Item], Result], items: Sequence[Item], beam_args: tuple[str, ...], scratch: pathlib.Path | None
) -> list[Result]:
    require("pipeline", "work on Beam")
    # 1.6 s of a core, which every process that imports this module is spared in runs without Beam arguments.
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions, PortableOptions

    with tempfile.TemporaryDirectory(prefix=".beam-", dir=scratch) as folder:
        # Beam's direct runner may download a binary unless its mode is in_memory. `beam_args` may override this option.
        options = PipelineOptions(["--direct_running_mode=in_memory", *beam_args])
        _require_job_server(options.view_as(PortableOptions).job_endpoint)
        work = _ToFile(function, pathlib.Path(folder).absolute(), secrets.token_bytes(32), pathlib.Path.cwd())
        try:
            with beam.Pipeline(options=options) as pipeline:
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
    """Raises InputError where no program listens at Beam's `--job_endpoint`, for which Beam would wait for minutes."""
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
    """Calls the function for an item and writes its result, or its InputError, to a file.

    So a runner need not return anything: many report a job's error as text, from which an InputError cannot be
    restored. Some results, such as TFDV's statistics, can only be pickled, and loading a pickle runs code. The files
    are therefore signed with a key that travels with the job and not through the folder, which others may be able to
    write to.

    A mistake is not raised: a cluster would do the work again, as often as its restart strategy says. The items that
    are left are skipped instead. A relative path, of a log for example, means the same to a worker as to the command.
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
        """Returns the result for an item.

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
