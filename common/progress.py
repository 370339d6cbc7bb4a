"""Prints progress lines to standard error, or passes them to a function that draws a bar."""

import contextlib
import dataclasses
import logging
import re
import time
from collections.abc import Callable, Iterator

from ctrpipe.common.lines import say
from ctrpipe.common.store_names import with_urls

_started = time.monotonic()
# `setLevel(logging.WARNING)` of this logger or of "ctrpipe" silences progress, and a handler of your own keeps it.
log = logging.getLogger("ctrpipe.progress")


_COUNT = re.compile(r"(\d[\d,]*) of (\d[\d,]*)")


@dataclasses.dataclass(frozen=True)
class Update:
    """One update of a progress bar.

    Attributes:
        text: The current work.
        share: The completed share of the step, 0 to 1; None if unknown.
        steps: The number of completed steps and of all steps; None if unchanged.
        is_line: Whether the text is a line of progress. Other texts are more frequent, and only report the progress of
            a step.
    """

    text: str
    share: float | None = None
    steps: tuple[int, int] | None = None
    is_line: bool = True

    @property
    def line(self) -> str:
        """The text after the seconds since program start."""
        return f"[{time.monotonic() - _started:6.1f}s] {self.text}"


_draw: Callable[[Update], None] | None = None


class _Lines(logging.Handler):
    """Draws a record, or prints it to the current standard error, which a test or a notebook may have replaced."""

    def emit(self, record: logging.LogRecord) -> None:
        update: Update = vars(record).get("update") or Update(record.getMessage())
        if _draw:
            _draw(update)
        else:
            say(update.line, err=True)


def _is_wanted(record: logging.LogRecord) -> bool:
    """Applies the level of the package's logger, which a logger with its own level does not inherit.

    The progress logger has its own level, and the package's logger has none. At level INFO, every logger of the package
    would send its records to a program's handlers.
    """
    return record.levelno >= logging.getLogger("ctrpipe").level


log.addHandler(_Lines())
log.addFilter(_is_wanted)
log.setLevel(logging.INFO)
log.propagate = False  # TFX and absl configure the root logger


@contextlib.contextmanager
def drawn_by(draw: Callable[[Update], None]) -> Iterator[None]:
    """Calls a function with each update in the block, in place of printing lines. It may be called from any thread."""
    global _draw
    before, _draw = _draw, draw
    try:
        yield
    finally:
        _draw = before


def is_drawn() -> bool:
    """Returns whether a function draws the progress now."""
    return _draw is not None


def announce(text: str, share: float | None = None, steps: tuple[int, int] | None = None) -> None:
    """Logs a line of progress. By default it is printed, after the seconds since program start.

    Args:
        text: The line.
        share, steps: See `Update`, for a bar.
    """
    text = with_urls(text)
    log.info("%s", text, extra={"update": Update(text, share, steps)})


def share_of(text: str) -> float | None:
    """Returns the share in a text such as "3 of 40 parts transformed"; None without such numbers."""
    done, of = (int(number.replace(",", "")) for number in match.groups()) if (match := _COUNT.search(text)) else (0, 0)
    return done / of if of else None


def throttled_announce(seconds: float = 10.0) -> Callable[[str], None]:
    """Returns a function that announces at most one text per `seconds`, the first one after `seconds`.

    A bar gets every text, with its share.
    """
    last = time.monotonic()

    def announce_if_due(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            announce(text, share_of(text))
        elif _draw and log.isEnabledFor(logging.INFO) and logging.getLogger("ctrpipe").level <= logging.INFO:
            _draw(Update(text, share_of(text), is_line=False))

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
