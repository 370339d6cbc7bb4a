"""One function over many parts of a log: in this process, in a pool of processes, or on a Beam runner."""

import concurrent.futures
import contextlib
import dataclasses
import json
import multiprocessing
import multiprocessing.connection
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import os
import pathlib
import pickle
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from common.errors import InputError
from common.files import write_bytes

WARM_SECONDS = 0.5  # what a copy of a warm process takes to start and to be fast
_warm = False
_resting: dict[int, concurrent.futures.ProcessPoolExecutor] = {}  # by size

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclasses.dataclass(frozen=True)
class Workers:
    """Where parts of a log are worked on.

    Args:
        most: As many processes on this machine at most as are worth their start; None: as it has cores.
        beam_args: Arguments for Beam; where there are any, Beam runs the work, on the runner that they name. Its
            workers must see the same files as this process.
        scratch: Folder that Beam's workers see as well, for their results; None: a temporary one of this machine.
        processes: Exactly so many processes, worth their start or not.
    """

    most: int | None = None
    beam_args: tuple[str, ...] = ()
    scratch: pathlib.Path | None = None
    processes: int | None = None

    def to_json(self) -> str:
        scratch = str(self.scratch) if self.scratch else None
        return json.dumps({**dataclasses.asdict(self), "scratch": scratch})

    @classmethod
    def from_json(cls, text: str) -> "Workers":
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
        """The function's result for each item, in the order of the items.

        Args:
            function: Pickles, as do items and results; writes what is large to files.
            items: The parts.
            seconds: What all of them take in one process, about. Decides how many processes pay.
            start_seconds: What a new process takes before its first item, where `warm` was not called.
            progress: Told how many items are done.
            judge: Given the results so far, those of the first items, after each of them; it may raise InputError to
                end the work. Not asked where Beam runs it, which hands back all of them at the end.

        Raises:
            InputError: as the function or `judge` raised it.
        """
        if self.beam_args:
            return _by_beam(function, items, self.beam_args, self.scratch)
        most = self.most or cores()
        start_seconds = WARM_SECONDS if _warm else start_seconds
        processes = min(len(items), self.processes or _paying(min(len(items), most), seconds, start_seconds))
        if processes <= 1:
            results = []
            for item in items:
                results.append(function(item))
                progress(len(results))
                judge(results)
            return results
        # Copies of a warm process start as they are needed, and stay: there may be more of them than there is work now.
        size = most if _warm and self.processes is None else processes
        return _by_pool(function, items, size, progress, judge)


def warm(module: str) -> None:
    """Starts a process that imports a module; all later processes are copies of it, and start at once.

    Returns while it imports. The module must start no thread, which a copy would lack.
    """
    global _warm
    multiprocessing.forkserver.set_forkserver_preload([module])
    multiprocessing.resource_tracker.ensure_running()  # it lifts the block where it starts
    with _deaf_to_interrupts():
        multiprocessing.forkserver.ensure_running()
    _warm = True


def copies(processes: int, folder: pathlib.Path) -> concurrent.futures.ProcessPoolExecutor:
    """Copies of this process, made now: it must not have started a thread yet that they would lack. See `end`.

    Args:
        processes: How many.
        folder: What they write; they remove it where this process is killed.
    """
    context = multiprocessing.get_context("fork")
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_obey_parent, initargs=(folder,))
    with _deaf_to_interrupts():
        pool.submit(os.getpid)  # a pool makes its processes for its first task
    return pool


def elsewhere(function: Callable[..., Result], *arguments: object) -> Result:
    """What the function returns, from a new process, which leaves nothing behind in this one.

    Raises:
        InputError: as the function raised it.
    """
    pool = concurrent.futures.ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), initializer=_obey_parent)
    try:
        with _deaf_to_interrupts():
            future = pool.submit(function, *arguments)
        return future.result()
    finally:
        end(pool)


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """What is blocked here stays blocked in new processes: Ctrl-C is for this one, which then ends the others."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end(pool: concurrent.futures.ProcessPoolExecutor) -> None:
    """Ends a pool's processes, whatever they do."""
    for process in list((pool._processes or {}).values()):
        process.terminate()
    pool.shutdown(wait=True, cancel_futures=True)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _paying(most: int, seconds: float, start_seconds: float) -> int:
    """All that there may be where that ends earlier than one process, which need not start, would."""
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
    """At most so many processes; copies of a warm one stay for the next work, see `rest`."""
    pool = _resting.pop(processes, None)
    if pool is None:
        # Never forked from here: this process may have loaded TensorFlow, whose threads a fork does not copy.
        context = multiprocessing.get_context("forkserver" if _warm else "spawn")
        pool = concurrent.futures.ProcessPoolExecutor(processes, context, initializer=_obey_parent)
    try:
        yield pool
    except BaseException:
        end(pool)
        raise
    if _warm:
        _resting[processes] = pool
    else:
        pool.shutdown()


def rest() -> None:
    """Ends the processes that have stayed: there will be no work for a while."""
    while _resting:
        _resting.popitem()[1].shutdown()


def _obey_parent(folder: pathlib.Path | None = None) -> None:
    """Leaves Ctrl-C to the parent, and ends when it has ended, however; removes a folder then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()


def _end_with_parent(folder: pathlib.Path | None) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)


def _by_beam(
    function: Callable[[Item], Result], items: Sequence[Item], beam_args: tuple[str, ...], scratch: pathlib.Path | None
) -> list[Result]:
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    with tempfile.TemporaryDirectory(prefix=".beam-", dir=scratch) as folder:
        # Beam's own direct runner may download a binary; in_memory never does. What follows overrides it.
        options = PipelineOptions(["--direct_running_mode=in_memory", *beam_args])
        work = _ToFile(function, pathlib.Path(folder))
        try:
            with beam.Pipeline(options=options) as pipeline:
                _ = pipeline | beam.Create(list(enumerate(items)), reshuffle=True) | "Work" >> beam.Map(work)
        except Exception as error:
            if work.mistake.exists():
                raise InputError(work.mistake.read_text()) from error
            raise
        return [pickle.loads(path.read_bytes()) for path in map(work.path, range(len(items)))]


@dataclasses.dataclass(frozen=True)
class _ToFile:
    """Calls the function for an item and leaves in files what becomes of it: a runner need hand nothing back.

    Many give a job's error as text only, in which a user's mistake is hard to find.
    """

    function: Callable
    folder: pathlib.Path

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
        write_bytes(self.path(index), result)
