"""Progress lines for the user, one a step, on standard error."""

import contextlib
import logging
import sys
import time
from collections.abc import Callable, Iterator

_started = time.monotonic()


def announce(text: str) -> None:
    """Prints a line with the seconds since the program started."""
    print(f"[{time.monotonic() - _started:6.1f}s] {text}", file=sys.stderr, flush=True)


def throttled_announce(seconds: float = 10.0) -> Callable[[str], None]:
    """Announces a text of a stage that says more than anybody wants to read: one in `seconds`, the first after them."""
    last = time.monotonic()

    def say(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            announce(text)

    return say


class _Announcer(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._say = throttled_announce()

    def emit(self, record: logging.LogRecord) -> None:
        self._say(record.getMessage())


@contextlib.contextmanager
def log_announced(name: str) -> Iterator[None]:
    """Announces now and then what a logger says, for work in Beam, which takes no function of this process."""
    log, handler = logging.getLogger(name), _Announcer()
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
