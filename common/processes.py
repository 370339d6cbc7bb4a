"""Every way to start a process, and one function over many parts of a log.

| what | for |
|---|---|
| `Workers.map` | a function over parts: here, in a pool of processes, or on a Beam runner |
| `preload` | makes the pools' processes start at once |
| `forked_pool`, `end_pool` | copies of this process, while it has no threads yet |
| `run_in_new_process` | one call whose memory, threads and settings must not stay in this process |
| `child_process` | a process that talks over a pipe until it is not needed |
| `start_command`, `stop_command` | another program |

Ctrl-C reaches this process alone, which then ends the others. All but commands end when this one does, even by kill -9.
"""

import concurrent.futures
import contextlib
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
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from common.errors import InputError
from common.files import write_bytes

PRELOADED_START_SECONDS = 0.5  # what a copy of a preloaded process takes to start and to reach its speed
_SIGNATURE_BYTES = 32
_preloaded = False
_idle_pools: dict[int, concurrent.futures.ProcessPoolExecutor] = {}  # by size

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Workers:
    """Who works on the parts of a log: processes of this machine, or a Beam runner.

    Args:
        most: The most processes to start, where they are worth their start; None: one a core.
        beam_args: Arguments for Beam; where there are any, Beam runs the work, on the runner that they name. Its
            workers must see the same files as this process.
        scratch: Folder that Beam's workers see as well, for their results; None: a temporary one of this machine.
        processes: Exactly so many processes, worth their start or not; 1 works in this process.
    """

    most: int | None = None
    beam_args: tuple[str, ...] = ()
    scratch: pathlib.Path | None = None
    processes: int | None = None

    def to_json(self) -> str:
        """Returns it as a TFX component's parameter, see `from_json`."""
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
        """Returns the function's result for each item, in their order.

        Args:
            function: Pickles, as do items and results; writes what is large to files.
            items: The parts.
            seconds: What all of them take in one process, about. Decides how many processes pay.
            start_seconds: What a new process takes before its first item, where `preload` was not called.
            progress: Called with the number of items that are done.
            judge: Given the results so far, those of the first items, after each of them; it may raise InputError to
                end the work. Not asked where Beam runs it, which hands back all of them at the end.

        Raises:
            InputError: as the function or `judge` raised it.
        """
        if self.beam_args:
            return _by_beam(function, items, self.beam_args, self.scratch)
        most = self.most or cores()
        start_seconds = PRELOADED_START_SECONDS if _preloaded else start_seconds
        processes = min(len(items), self.processes or _worth_starting(min(len(items), most), seconds, start_seconds))
        if processes <= 1:
            results = []
            for item in items:
                results.append(function(item))
                progress(len(results))
                judge(results)
            return results
        # Copies of a preloaded process start as they are needed, and stay: there may be more of them than work now.
        size = most if _preloaded and self.processes is None else processes
        return _by_pool(function, items, size, progress, judge)


def preload(module: str) -> None:
    """Starts a process that imports a module; the processes of later pools are copies of it, and start at once.

    Returns while it imports. The module must start no thread, which a copy would lack.
    """
    global _preloaded
    multiprocessing.forkserver.set_forkserver_preload([module])
    multiprocessing.resource_tracker.ensure_running()  # it lifts the block where it starts
    with _interrupts_blocked():
        multiprocessing.forkserver.ensure_running()
    _preloaded = True


def forked_pool(processes: int, folder: pathlib.Path) -> concurrent.futures.ProcessPoolExecutor:
    """Returns a pool of copies of this process, made now; end it with `end_pool`.

    This process must not have started a thread yet, which the copies would lack.

    Args:
        processes: How many.
        folder: What they write; they remove it where this process is killed.
    """
    context = multiprocessing.get_context("fork")
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_follow_parent, initargs=(folder,))
    with _interrupts_blocked():
        pool.submit(os.getpid)  # a pool makes its processes for its first task
    return pool


def end_pool(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    """Ends a pool's processes at once, whatever they do."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


def run_in_new_process(function: Callable[..., Result], *arguments: object) -> Result:
    """Returns what the function returns in a new process, of which nothing stays in this one.

    Raises:
        InputError: as the function raised it.
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
    """Runs `function(*arguments, connection)` in a new process, which is ended with the block.

    Yields:
        This side of the connection.
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


def start_command(command: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    """Starts a program in a session of its own: Ctrl-C in the terminal does not reach it. `options` as of Popen."""
    return subprocess.Popen(command, start_new_session=True, **options)


def stop_command(process: "subprocess.Popen[Any]", seconds: float) -> None:
    """Asks a program to end, and kills it where it has not within so many seconds."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Blocks SIGINT here and, for good, in the processes that start meanwhile: they would die with a traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cores() -> int:
    """Returns how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def _worth_starting(most: int, seconds: float, start_seconds: float) -> int:
    """Returns how many processes end the work first: `most` where that beats one, which need not start."""
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
    """Yields a pool of at most so many processes; copies of a preloaded one stay, see `end_idle_pools`."""
    pool = _idle_pools.pop(processes, None)
    if pool is None:
        # Never forked from here: this process may have loaded TensorFlow, whose threads a fork does not copy.
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
    """Ends the processes that wait for the next `Workers.map`."""
    while _idle_pools:
        _idle_pools.popitem()[1].shutdown()


def _follow_parent(folder: pathlib.Path | None = None) -> None:
    """Ignores Ctrl-C, which is the parent's, and ends this process when the parent has ended; removes a folder then."""
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
    # 1.6 s of a core, in every process that shares work, for runs that have Beam arguments.
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    with tempfile.TemporaryDirectory(prefix=".beam-", dir=scratch) as folder:
        # Beam's own direct runner may download a binary; in_memory never does. What follows overrides it.
        options = PipelineOptions(["--direct_running_mode=in_memory", *beam_args])
        work = _ToFile(function, pathlib.Path(folder), secrets.token_bytes(32))
        try:
            with beam.Pipeline(options=options) as pipeline:
                _ = pipeline | beam.Create(list(enumerate(items)), reshuffle=True) | "Work" >> beam.Map(work)
        except Exception as error:
            if work.mistake.exists():
                raise InputError(work.mistake.read_text()) from error
            raise
        return [work.read(index) for index in range(len(items))]


@dataclasses.dataclass(frozen=True)
class _ToFile:
    """Calls the function for an item and writes its result, or its InputError, to a file.

    A runner need hand nothing back: many give a job's error as text only, in which a user's mistake is hard to find.
    A result may be what only pickle can write, as TFDV's statistics of some rows. A pickle is code; so the files are
    signed with a key that travels with the job and not through the folder, which others may be able to write to.
    """

    function: Callable[[Any], Any]
    folder: pathlib.Path
    key: bytes

    @property
    def mistake(self) -> pathlib.Path:
        return self.folder / "mistake"

    def path(self, index: int) -> pathlib.Path:
        return self.folder / f"{index}.pickle"

    def __call__(self, numbered: tuple[int, object]) -> None:
        index, item = numbered
        try:
            result = pickle.dumps(self.function(item))
        except InputError as error:
            write_bytes(self.mistake, str(error).encode())
            raise
        write_bytes(self.path(index), self._sign(index, result) + result)

    def read(self, index: int) -> Any:
        """Returns the result for an item.

        Raises:
            InputError: its file was not written by this job.
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
