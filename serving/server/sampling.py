"""Processes a random sample of the answered requests in one background thread, and writes it to files."""

import contextlib
import logging
import os
import pathlib
import queue
import random
import threading
import time
import urllib.parse
from collections.abc import Callable
from typing import Protocol

from ctrpipe.common.errors import InputError, one_line

log = logging.getLogger(__name__)

# A file is closed, and can then be read, when it reaches this size or age.
FILE_BYTES = 64 << 20
FILE_SECONDS = 60.0
# Maximum memory of the waiting work. Above it, requests are answered but not sampled.
WAITING_BYTES = 64 << 20


class SamplingThread:
    """A thread that processes a random sample of the requests, one after another.

    Args:
        name: The thread's name.
        rate: The share of the requests to pick, above 0 and at most 1.
        idle: Called with False after each job and after `idle_seconds` without one; called with True at the end.
        idle_seconds: How long to wait for a job before `idle` is called.
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
        """Passes work to the thread. Drops the work and returns False if too much is waiting.

        Args:
            size: Approximate bytes of memory that the work holds until it is done.
            job: The work.
        """
        with self._lock:
            if self._waiting_bytes + size > WAITING_BYTES:
                return False
            self._waiting_bytes += size
        self._waiting.put((size, job))
        return True

    def close(self) -> None:
        """Finishes the waiting work and ends the thread."""
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
            except Exception:  # only this request is lost
                log.exception("A sampled request was lost")
            with self._lock:
                self._waiting_bytes -= size
            self._idle(False)


class RecordWriter(Protocol):
    """Writes records to a file."""

    def write(self, record: object) -> object:
        """Takes a record."""

    def flush(self) -> object:
        """Flushes the buffered records, if the format allows partial files."""

    def close(self) -> None:
        """Completes the file."""


class SampleFiles:
    """Files of records, one folder per model: FOLDER/MODEL/<time>-<process>-<number><suffix>.

    A file has the extra ending `.part` while it is written.

    Args:
        folder: Where to write; created if missing.
        suffix: The ending of a complete file, such as `.tfrecord`.
        flag: The server's flag that names the folder, for messages.
        open_file: Opens a new file for writing.
        file_bytes: The size at which a file is closed.
        file_seconds: The age at which a file is closed, in seconds.

    Raises:
        InputError: the folder is not writable.
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
        self._lost = 0  # records since the last that was written

    def write(self, model: str, record: object, size: int) -> bool:
        """Writes a record of a model; returns whether it was written.

        After a failure, such as a full disk, the file is completed without the record, and the next record starts a new
        file.
        """
        try:
            if model not in self._files:
                self._files[model] = self._new_file(model)
            file = self._files[model]
            file.writer.write(record)
            file.writer.flush()
            file.whole = file.part.stat().st_size if file.part.exists() else 0
        except Exception as error:  # such as a full disk, as the writer's library reports it
            self._note_lost(error)
            if failed := self._files.pop(model, None):
                self._keep_whole_records(failed)
            return False
        if self._lost:
            log.warning("%s: records are written again, after %d were lost", self._folder, self._lost)
            self._lost = 0
        file.size += size
        return True

    def close_due(self, all_of_them: bool) -> None:
        """Completes the files that are large or old enough, or all files."""
        for model, file in list(self._files.items()):
            age = time.monotonic() - file.opened
            if all_of_them or file.size >= self._file_bytes or age >= self._file_seconds:
                del self._files[model]
                try:
                    file.writer.close()
                    file.part.rename(file.part.with_suffix(""))
                except Exception as error:
                    self._note_lost(error)
                    self._keep_whole_records(file)

    def _note_lost(self, error: Exception) -> None:
        """Logs lost records once, because further records fail for the same reason, such as a full disk."""
        if not self._lost:
            log.error("%s: records are lost until this ends: %s", self._folder, one_line(error))
        self._lost += 1

    def _keep_whole_records(self, file: "_File") -> None:
        """Completes a failed file without the partial record at its end."""
        with contextlib.suppress(Exception):  # it has failed before
            file.writer.close()
        try:
            if file.whole:
                os.truncate(file.part, file.whole)
                file.part.rename(file.part.with_suffix(""))
            else:
                file.part.unlink(missing_ok=True)
        except OSError:
            log.debug("%s stays as it is", file.part, exc_info=True)

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
        self.whole = 0  # bytes of the file that are whole records
