"""Reads a log in the background while the process that will ingest it loads TensorFlow and TFX.

A command calls `reading_ahead` before it loads its libraries. Seconds later, in the same process, the TFX component
that ingests the log calls `handed_over`. TFX passes only strings to a component, so the results wait in a module-level
dictionary. Its key consists of the arguments that both calls have: the description, the files and the seed. A component
in another process (on Kubeflow, or in a follower) finds no results and reads the log itself.
"""

import concurrent.futures
import contextlib
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ctrpipe.common.processes import end_pool, forked_pool
from ctrpipe.transforms.log.division import Division, find_division
from ctrpipe.transforms.log.files import FileState, Range, state_of
from ctrpipe.transforms.log.ingest import CopyPiece, IngestedRange, PartialIngest, move_to_splits, range_work
from ctrpipe.transforms.log.readers import plan
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

NICENESS = 10  # of the readers: they get a tenth of a core that they share with a process of niceness 0
# Results to hand over, by `_key`. Measured on a million rows in Criteo's format (243 MB, 4 cores under a load of 8,
# medians of five alternating pairs): loading and ingesting take 19.1 s instead of 24.8 s. Ingesting alone takes 0.16 s
# instead of 9.8 s, and loading at the same time 19.0 s instead of 15.5 s.
_waiting: dict[str, "ReadAhead"] = {}


@contextlib.contextmanager
def reading_ahead(spec: LogSpec, files: Sequence[str], seed: int, near: pathlib.Path, processes: int) -> Iterator[None]:
    """Reads a log inside the block, for `handed_over` in this process. For the arguments see ReadAhead."""
    key = _key(spec, files, seed)
    with ReadAhead(spec, files, seed, near, processes) as _waiting[key]:
        try:
            yield
        finally:
            _waiting.pop(key, None)


@contextlib.contextmanager
def handed_over(spec: LogSpec, files: Sequence[str], seed: int) -> Iterator[PartialIngest | None]:
    """Yields the part of a log that was read ahead, at most once, or None. Its files exist until the block ends.

    Raises:
        InputError: a file cannot be read.
    """
    ahead = _waiting.pop(_key(spec, files, seed), None)
    if ahead is None:
        yield None
        return
    with ahead:
        yield ahead.take()


def _key(spec: LogSpec, files: Sequence[str], seed: int) -> str:
    return repr((spec.model_dump_json(), list(files), seed))


class ReadAhead(contextlib.AbstractContextManager["ReadAhead"]):
    """Reads a log in forks of this process. Leaving the block ends the forks and removes files that were not taken.

    The forks have a lower priority: they use all cores only while this process waits for them.

    Args:
        spec: The description of the log.
        files: The files of the log, in order.
        seed: Seed of `split.by: hash`.
        near: A path on the file system of the payload; it need not exist.
        processes: Number of forks.

    Raises:
        OSError: the file system is not writable, or no process can be started.
    """

    def __init__(self, spec: LogSpec, files: Sequence[str], seed: int, near: pathlib.Path, processes: int):
        self._spec, self._files, self._seed = spec, list(files), seed
        self._states = _states(files)
        path = near.resolve()
        existing = next(folder for folder in (path, *path.parents) if folder.is_dir())
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=".reading-", dir=existing))
        self._pool = forked_pool(processes, self._folder, NICENESS)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._reading = self._thread.submit(self._read)
        self._placed = self._thread.submit(self._place)

    def _read(self) -> tuple[list[Range], Division, list[concurrent.futures.Future[IngestedRange]]]:
        """Plans the ranges and submits all of them."""
        ranges = self._pool.submit(plan, self._files, self._spec).result()

        def apply(work: Callable[[Range], Any], parts: list[Range]) -> list[Any]:
            return [future.result() for future in [self._pool.submit(work, part) for part in parts]]

        division = find_division(self._spec, self._files, ranges, self._seed, apply)
        work, items = range_work(self._spec, self._files, division, ranges, self._folder)
        return ranges, division, [self._pool.submit(work, item) for item in items]

    def _place(self) -> dict[str, pathlib.Path]:
        """Moves the parts to their splits when all ranges have been read. Returns the splits' folders."""
        _, _, futures = self._reading.result()
        results = [future.result() for future in futures]
        folders = {name: self._folder / name for name in SPLITS}
        for folder in folders.values():
            folder.mkdir()
        pieces = self._pool.submit(move_to_splits, self._spec, results, folders).result()
        for copied in [self._pool.submit(CopyPiece(self._spec), piece) for piece in pieces]:
            copied.result()
        return folders

    def take(self) -> PartialIngest | None:
        """Stops reading and returns the ranges read so far; None if a file has changed in between.

        Raises:
            InputError: a file cannot be read.
        """
        if _states(self._files) != self._states:
            return None
        ranges, division, futures = self._reading.result()
        # Ranges are read in order: only the last ones can still be cancelled.
        read = list(futures)
        while read and read[-1].cancel():
            read.pop()
        results = [future.result() for future in read]
        placed = self._placed.result() if len(read) == len(futures) else None
        self._pool.shutdown(cancel_futures=True)
        return PartialIngest(ranges, results, division, placed)

    def __exit__(self, *error: object) -> None:
        end_pool(self._pool)
        self._thread.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _states(files: Sequence[str]) -> list[FileState]:
    """Returns the files' states; an empty list if a file is missing, which its reader reports."""
    try:
        return [state_of(path) for path in files]
    except OSError:
        return []
