"""Draw the progress of a function as a bar in a notebook. Elsewhere progress is printed line by line."""

import contextlib
import functools
import html
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from ctrpipe.common.printable import printable
from ctrpipe.common.progress import Update, drawn_by, is_drawn
from ctrpipe.data import as_given

P = ParamSpec("P")
T = TypeVar("T")
_WRAPS = "white-space: pre-wrap"  # wraps lines at the width of the page, which a phone needs
DRAWN_EVERY = 0.2  # seconds; a browser does not show more


def with_bar(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function to draw its progress as one bar if it is called in a notebook."""

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> T:
        with _bar(f"ctrpipe.{function.__name__}"):
            return function(*arguments, **options)

    return called


@contextlib.contextmanager
def _bar(title: str) -> Iterator[None]:
    if not in_notebook() or is_drawn():
        yield
        return
    bar = _Bar(title)
    try:
        with drawn_by(bar.update):
            yield
    except BaseException:
        bar.end("stopped after")
        raise
    bar.end("done in")


def in_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook. Imports nothing."""
    ipython = sys.modules.get("IPython")  # imported by the kernel
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None


class _Bar:
    """One output of a cell: a bar and the newest text, then the time taken, with the lines folded below it.

    Nothing is shown if the function reports no progress.
    """

    def __init__(self, title: str):
        self._title = title
        self._started = self._drawn = time.monotonic()
        self._lines: list[str] = []
        self._steps: tuple[int, int] | None = None
        self._share: float | None = None
        self._shown: Any = None
        self._lock = threading.Lock()  # threads of the function report progress too

    def update(self, update: Update) -> None:
        """Draws an update. Skips one without a line that follows another too soon."""
        with self._lock:
            if update.steps is not None:
                self._steps, self._share = update.steps, None
            if update.share is not None:
                self._share = update.share
            if update.is_line:
                self._lines.append(as_given(printable(update.line)))
            if update.is_line or time.monotonic() - self._drawn >= DRAWN_EVERY:
                self._drawn = time.monotonic()
                self._show(f"{self._progress()} {html.escape(as_given(printable(update.text)))}")

    def end(self, how: str) -> None:
        """Shows that the function has ended, and how."""
        with self._lock:
            if self._shown is None:
                return
            lines = html.escape("\n".join(self._lines))
            head = f"{self._title}: {how} {self._seconds} s"
            self._show(f"<details><summary>{head}</summary><pre style='{_WRAPS}'>{lines}</pre></details>")

    @property
    def _seconds(self) -> str:
        return f"{time.monotonic() - self._started:.0f}"

    def _progress(self) -> str:
        """Returns the bar with the seconds so far. The bar is indeterminate while the share is unknown."""
        share = self._share
        if self._steps:
            done, of = self._steps
            share = (done + (share or 0.0)) / max(of, 1)
        value = "" if share is None else f' value="{min(share, 1.0):.3f}" max="1"'
        return f"<b>{self._title}</b> <progress{value}></progress> {self._seconds} s"

    def _show(self, text: str) -> None:
        from IPython.display import display  # lazy: only a notebook has it, which has imported it

        data = {"text/html": f"<div>{text}</div>", "text/plain": "\n".join(self._lines)}
        if self._shown is None:
            self._shown = display(data, raw=True, display_id=True)  # type: ignore[no-untyped-call]  # IPython has no types for it
        else:
            self._shown.update(data, raw=True)
