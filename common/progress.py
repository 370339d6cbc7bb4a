"""Print progress lines to standard error."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator

_started = time.monotonic()
# `setLevel(logging.WARNING)` of this logger or of "ctrpipe" silences progress, and a handler of your own keeps it.
log = logging.getLogger("ctrpipe.progress")


class _Lines(logging.Handler):
    """Prints a record to the current standard error, which a test or a notebook may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"[{time.monotonic() - _started:6.1f}s] {record.getMessage()}", file=sys.stderr, flush=True)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Applies the level of the package's logger, which a logger with its own level does not inherit.

    Progress has its own so that the package's stays unset: at INFO, every logger of the package would send its records
    to a program's handlers.
    """
    return record.levelno >= logging.getLogger("ctrpipe").level


log.addHandler(_Lines())
log.addFilter(_is_wanted)
log.setLevel(logging.INFO)
log.propagate = False  # TFX and absl configure the root logger


def announce(text: str) -> None:
    """Logs a line of progress. By default it is printed, after the seconds since program start."""
    log.info("%s", text)


def throttled_announce(seconds: float = 10.0) -> Callable[[str], None]:
    """Returns a function that announces at most one text per `seconds`, the first one after `seconds`."""
    last = time.monotonic()

    def announce_if_due(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            announce(text)

    return announce_if_due


class _Announcer(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._announce = throttled_announce()

    def emit(self, record: logging.LogRecord) -> None:
        self._announce(record.getMessage())


@contextlib.contextmanager
def log_announced(name: str) -> Iterator[None]:
    """Announces messages of a logger, at most one per 10 seconds. For work on Beam, which cannot use callbacks."""
    log, handler = logging.getLogger(name), _Announcer()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
