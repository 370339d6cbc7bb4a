"""What is done with a sample of the answered requests, off their way: picked at random, by one thread, into files."""

import logging
import os
import pathlib
import queue
import random
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Any, Protocol

from ctrpipe.common.errors import InputError, one_line

log = logging.getLogger(__name__)

# A file is closed, and can be read, once it has so many bytes or is so old.
FILE_BYTES = 64 << 20
FILE_SECONDS = 60.0
# What waits for the thread takes no more memory than this; beyond it requests are answered, and not sampled.
WAITING_BYTES = 64 << 20


class SamplingThread:
    """A thread that works on a random sample of the requests, one after another.

    Args:
        name: The thread's name.
        rate: The share of the requests to pick, above 0 and at most 1.
        idle: Called at least every `idle_seconds`, and a last time with True at the end.
        idle_seconds: Seconds.
    """

    def __init__(self, name: str, rate: float, idle: Callable[[bool], None], idle_seconds: float):
        self.rate = rate
        self._idle, self._idle_seconds = idle, idle_seconds
        self._waiting: queue.SimpleQueue[tuple[int, Callable[[], None]] | None] = queue.SimpleQueue()
        self._waiting_bytes = 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def picks(self) -> bool:
        """Returns whether the next request is in the sample."""
        return random.random() < self.rate

    def add(self, size: int, job: Callable[[], None]) -> bool:
        """Hands work to the thread; returns False, and forgets it, where too much waits already.

        Args:
            size: About how many bytes of memory the work holds until it is done.
            job: The work.
        """
        with self._lock:
            if self._waiting_bytes + size > WAITING_BYTES:
                return False
            self._waiting_bytes += size
        self._waiting.put((size, job))
        return True

    def close(self) -> None:
        """Does what waits, and ends the thread."""
        self._waiting.put(None)
        self._thread.join()

    def _work(self) -> None:
        while True:
            try:
                waiting = self._waiting.get(timeout=self._idle_seconds)
            except queue.Empty:
                self._idle(False)
                continue
            if waiting is None:
                self._idle(True)
                return
            size, job = waiting
            try:
                job()
            except Exception:  # one request's, and not the end of the sample
                log.exception("A sampled request was lost")
            with self._lock:
                self._waiting_bytes -= size
            self._idle(False)


class RecordWriter(Protocol):
    """Writes records to a file."""

    def write(self, record: Any) -> object:
        """Writes a record."""

    def close(self) -> None:
        """Completes the file."""


class SampleFiles:
    """Files of records, those of each model in a folder of its own: FOLDER/MODEL/<time>-<process>-<number><suffix>.

    A file that is being written ends in `.part`, and loses that ending once it is complete.

    Args:
        folder: Made where it is not there.
        suffix: The ending of a complete file, such as `.tfrecord`.
        flag: The server's flag that names the folder, for messages.
        open_file: Opens a new file for writing.
        file_bytes: The size at which a file is closed.
        file_seconds: The age at which a file is closed.

    Raises:
        InputError: the folder cannot be written.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        suffix: str,
        flag: str,
        open_file: Callable[[pathlib.Path], RecordWriter],
        file_bytes: int,
        file_seconds: float,
    ):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f".{os.getpid()}").touch()
            (folder / f".{os.getpid()}").unlink()
        except OSError as error:
            reason = f"{error.strerror}; choose another {flag}"
            raise InputError(f"{folder}: no sample can be kept there: {reason}") from error
        self._folder, self._suffix, self._open = folder, suffix, open_file
        self._file_bytes, self._file_seconds = file_bytes, file_seconds
        self._files: dict[str, _File] = {}

    def write(self, model: str, record: Any, size: int) -> None:
        """Writes a record of a model; the next one begins a new file where this one has failed."""
        if model not in self._files:
            self._files[model] = self._new_file(model)
        try:
            self._files[model].writer.write(record)
        except Exception:
            del self._files[model]
            raise
        self._files[model].size += size

    def close_due(self, all_of_them: bool) -> None:
        """Completes the files that are large or old enough, or all."""
        for model, file in list(self._files.items()):
            age = time.monotonic() - file.opened
            if all_of_them or file.size >= self._file_bytes or age >= self._file_seconds:
                del self._files[model]
                try:
                    file.writer.close()
                    file.part.rename(file.part.with_suffix(""))
                except Exception as error:  # a full disk, in the words of the writer's library
                    log.error("%s could not be completed: %s", file.part, one_line(error))

    def _new_file(self, model: str) -> "_File":
        folder = self._folder / urllib.parse.quote(model, safe="")
        folder.mkdir(parents=True, exist_ok=True)
        stamp = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}-{time.monotonic_ns()}"
        part = folder / f"{stamp}{self._suffix}.part"
        return _File(part, self._open(part))


class _File:
    def __init__(self, part: pathlib.Path, writer: RecordWriter):
        self.part, self.writer = part, writer
        self.opened = time.monotonic()
        self.size = 0
