"""Reads a log before it is asked for, while the process that will ask loads its libraries."""

import concurrent.futures
import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence

from common.processes import copies, end
from transforms.log.ingest import SPLITS, Begun, Parsed, begin, place
from transforms.log.readers import Range, plan
from transforms.log.spec import LogSpec

_current: "ReadAhead | None" = None


class ReadAhead(contextlib.AbstractContextManager):
    """Copies of this process, which read a log; they end, and what nobody took is removed, when this is left.

    Args:
        spec: The description of the log.
        files: Its files, in log order.
        seed: Seed of `split.by: hash`.
        near: A path on the file system of the payload to be; it need not exist.
        processes: How many copies.

    Raises:
        OSError: nothing can be written there, or no process be started.
    """

    def __init__(self, spec: LogSpec, files: Sequence[str], seed: int, near: pathlib.Path, processes: int):
        self._log = (spec, list(files), seed)
        self._stamps = _stamps(files)
        path = near.resolve()
        there = next(folder for folder in (path, *path.parents) if folder.is_dir())
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=".reading-", dir=there))
        self._pool = copies(processes, self._folder)
        self._thread = concurrent.futures.ThreadPoolExecutor(1)
        self._begun = self._thread.submit(self._begin)
        self._placed = self._thread.submit(self._place)

    def _begin(self) -> tuple[list[Range], list[concurrent.futures.Future[Parsed]]]:
        spec, files, seed = self._log
        ranges = self._pool.submit(plan, files, spec).result()
        work, items = begin(spec, files, seed, ranges, self._folder)
        return ranges, [self._pool.submit(work, item) for item in items]

    def _place(self) -> dict[str, pathlib.Path]:
        """The folders of the splits, when all ranges are read."""
        _, futures = self._begun.result()
        parsed = [future.result() for future in futures]
        folders = {name: self._folder / name for name in SPLITS}
        for folder in folders.values():
            folder.mkdir()
        self._pool.submit(place, self._log[0], parsed, folders).result()
        return folders

    def take(self, spec: LogSpec, files: Sequence[str], seed: int) -> Begun | None:
        """What is read by now, and no more is; None where that is another log, or has changed since.

        Raises:
            InputError: a file cannot be read.
        """
        if (spec, list(files), seed) != self._log or _stamps(files) != self._stamps:
            return None
        ranges, futures = self._begun.result()
        # They are read in their order: what is left out are the last ones.
        read = list(futures)
        while read and read[-1].cancel():
            read.pop()
        parsed = [future.result() for future in read]
        placed = self._placed.result() if len(read) == len(futures) else None
        self._pool.shutdown(cancel_futures=True)
        return Begun(ranges, parsed, placed)

    def __exit__(self, *error: object) -> None:
        end(self._pool)
        self._thread.shutdown(cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)


def _stamps(files: Sequence[str]) -> list[tuple[int, int]]:
    """Sizes and times; none where a file is not there, which who reads it says."""
    try:
        return [(found.st_size, found.st_mtime_ns) for found in map(os.stat, files)]
    except OSError:
        return []


@contextlib.contextmanager
def reading_ahead(spec: LogSpec, files: Sequence[str], seed: int, near: pathlib.Path, processes: int) -> Iterator[None]:
    """A ReadAhead for the `taken` of this process; arguments as there."""
    global _current
    with ReadAhead(spec, files, seed, near, processes) as _current:
        try:
            yield
        finally:
            _current = None


@contextlib.contextmanager
def taken(spec: LogSpec, files: Sequence[str], seed: int) -> Iterator[Begun | None]:
    """What has been read ahead of this log, if anything; its files are there inside the block only.

    Raises:
        InputError: a file cannot be read.
    """
    if _current is None:
        yield None
        return
    with _current as ahead:
        yield ahead.take(spec, files, seed)
