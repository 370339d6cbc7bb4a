"""Make Ctrl-C end a program even if Python, a library or native code swallows KeyboardInterrupt."""

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
from typing import Any

from ctrpipe.common.errors import causes

AGAIN_AFTER = 0.5  # seconds
_PACKAGE = pathlib.Path(__file__).parents[1]
_OWN = tuple(
    f"{folder}{os.sep}" for folder in (_PACKAGE, _PACKAGE.with_name("benchmarks"), _PACKAGE.with_name("studies"))
)
_EXTENSIONS = importlib.machinery.ExtensionFileLoader
_TENSORFLOW = os.path.join("tensorflow", "python", "")


class _Watch:
    """Repeats a signal until the program has caught its KeyboardInterrupt.

    Python prints and drops exceptions in finalizers and in callbacks of the garbage collector (JAX has one). Native
    code that calls Python and ignores its errors drops them as well.
    """

    def __init__(self) -> None:
        self._started = self._caught = False

    def start(self, number: int) -> None:
        if not self._started:
            self._started = True
            _thread.start_new_thread(self._repeat, (number,))  # threading.Thread could wait for a lock of this thread

    def end(self) -> None:
        self._caught = True

    def _repeat(self, number: int) -> None:
        main = threading.main_thread().ident or 0
        time.sleep(AGAIN_AFTER)
        while not self._caught:
            if not _is_ending(main):
                signal.pthread_kill(main, number)
            time.sleep(AGAIN_AFTER)


_watch: _Watch | None = None


@contextlib.contextmanager
def interrupts_delivered_once() -> Iterator[None]:
    """Like `interrupts_delivered`, unless it is already active, or the calling thread receives no signals."""
    is_outer = _watch is None and threading.current_thread() is threading.main_thread()
    with interrupts_delivered() if is_outer else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def interrupts_delivered() -> Iterator[None]:
    """Makes Ctrl-C raise KeyboardInterrupt repeatedly until the block ends or calls `acknowledge_interrupt`."""
    global _watch
    previous_handler, previous_hook = signal.getsignal(signal.SIGINT), sys.unraisablehook

    def ignore_interrupts(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            previous_hook(unraisable)

    _watch, sys.unraisablehook = _Watch(), ignore_interrupts
    if previous_handler is signal.default_int_handler:  # background processes of a shell script ignore SIGINT
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        acknowledge_interrupt()
        _watch, sys.unraisablehook = None, previous_hook
        if previous_handler is signal.default_int_handler:
            signal.signal(signal.SIGINT, previous_handler)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Signal handler that raises KeyboardInterrupt; inside `interrupts_delivered`, until it is acknowledged.

    Delays the exception while one of these runs, until it has returned:

    - native code of TensorFlow that calls Python: an error may abort the process;
    - the initialization of a native module: importlib discards a module whose initialization fails.
    """
    if _watch:
        _watch.start(number)
        if _is_fragile(frame):
            sys.setprofile(_raise_when_safe)
            return
    raise KeyboardInterrupt


def _raise_when_safe(frame: FrameType, event: str, _: object) -> None:
    if event != "call" and not _is_fragile(frame.f_back if event == "return" else frame):
        sys.setprofile(None)
        raise KeyboardInterrupt


def acknowledge_interrupt() -> None:
    """Marks KeyboardInterrupt as caught, so it is not raised again. For programs that continue with other work."""
    global _watch
    if _watch:
        _watch.end()
        _watch = _Watch()


def _is_fragile(frame: FrameType | None) -> bool:
    """Returns whether ctrpipe's code is waiting for TensorFlow or for the initialization of a native module."""
    while frame and not frame.f_code.co_filename.startswith(_OWN):
        if _TENSORFLOW in frame.f_code.co_filename:
            return True
        if frame.f_code.co_name == "_load_unlocked":  # importlib: discards a module whose initialization fails
            loader = getattr(frame.f_locals.get("spec"), "loader", None)
            if loader is importlib.machinery.BuiltinImporter or isinstance(loader, _EXTENSIONS):
                return True
        frame = frame.f_back
    return False


def _is_ending(thread: int) -> bool:
    """Returns whether a thread is handling KeyboardInterrupt, in an `except` or `finally` block."""
    handled: Any = sys._current_exceptions().get(thread)
    if isinstance(handled, tuple):  # Python 3.11 gives the type, the exception and its traceback
        handled = handled[1]
    return any(isinstance(cause, KeyboardInterrupt) for cause in causes(handled))
