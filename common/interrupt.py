"""Makes Ctrl-C end a program even where Python, a library or native code swallows KeyboardInterrupt."""

import _thread
import contextlib
import importlib.machinery
import os
import pathlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from common.errors import causes
from common.packages import PACKAGES

AGAIN_AFTER = 0.5  # seconds
_ROOT = pathlib.Path(__file__).parents[1]
_OWN = tuple(f"{_ROOT / package}{os.sep}" for package in (*PACKAGES, "benchmarks"))
_TENSORFLOW = os.path.join("tensorflow", "python", "")


class _Watch:
    """Sends a signal again until its KeyboardInterrupt is caught.

    The exception is lost where it is raised in a finalizer or in a callback of the garbage collector (JAX has one):
    Python prints it and goes on. Native code that calls Python and takes any error for an answer loses it as well.
    """

    def __init__(self) -> None:
        self._started = self._heard = False

    def start(self, number: int) -> None:
        if not self._started:
            self._started = True
            _thread.start_new_thread(self._repeat, (number,))  # threading.Thread may need a lock that this thread holds

    def end(self) -> None:
        self._heard = True

    def _repeat(self, number: int) -> None:
        main = threading.main_thread().ident or 0
        time.sleep(AGAIN_AFTER)
        while not self._heard:
            if not _is_ending(main):
                signal.pthread_kill(main, number)
            time.sleep(AGAIN_AFTER)


_watch: _Watch | None = None


@contextlib.contextmanager
def interrupts_delivered() -> Iterator[None]:
    """Makes sure that Ctrl-C ends this block by KeyboardInterrupt, or reaches `acknowledge_interrupt`."""
    global _watch
    before, shown = signal.getsignal(signal.SIGINT), sys.unraisablehook

    def ignored(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            shown(unraisable)

    _watch, sys.unraisablehook = _Watch(), ignored
    if before is signal.default_int_handler:  # a shell script's background process ignores it
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        acknowledge_interrupt()
        _watch, sys.unraisablehook = None, shown
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt: the handler of SIGINT. Inside `interrupts_delivered` it is raised until it is heard.

    Inside TensorFlow, whose native code calls Python all the time and may abort the process on an error, and while a
    native module initialises itself, it is raised as soon as that has returned.
    """
    if _watch:
        _watch.start(number)
        if _is_fragile(frame):
            sys.setprofile(_raise_when_safe)  # runs before and after every call
            return
    raise KeyboardInterrupt


def _raise_when_safe(frame: FrameType, event: str, _: object) -> None:
    if event != "call" and not _is_fragile(frame.f_back if event == "return" else frame):
        sys.setprofile(None)
        raise KeyboardInterrupt


def acknowledge_interrupt() -> None:
    """Says that KeyboardInterrupt was caught and the program still has work to do: it is not sent again."""
    global _watch
    if _watch:
        _watch.end()
        _watch = _Watch()


def _is_fragile(frame: FrameType | None) -> bool:
    """Returns whether TensorFlow, or the start of a native module, runs above the project's own code."""
    while frame and not frame.f_code.co_filename.startswith(_OWN):
        if _TENSORFLOW in frame.f_code.co_filename:
            return True
        if frame.f_code.co_name == "_load_unlocked":  # of importlib, which discards a module that fails
            if isinstance(getattr(frame.f_locals.get("spec"), "loader", None), importlib.machinery.ExtensionFileLoader):
                return True
        frame = frame.f_back
    return False


def _is_ending(thread: int) -> bool:
    """Returns whether a thread is cleaning up after KeyboardInterrupt."""
    handled = sys._current_exceptions().get(thread, (None, None, None))[1]
    return any(isinstance(cause, KeyboardInterrupt) for cause in causes(handled))
