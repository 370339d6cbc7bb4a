"""Ctrl-C arrives, wherever Python is when it comes."""

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator

AGAIN_AFTER = 0.05  # seconds


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Sends an interrupt again where Python would only print it and go on.

    That is so in a finalizer and in a callback of the garbage collector: JAX has one, where most interrupts of a
    collection, which is native code, are raised.
    """
    before = sys.unraisablehook

    def ignored(found: "sys.UnraisableHookArgs") -> None:
        if issubclass(found.exc_type, KeyboardInterrupt):
            _thread.start_new_thread(_interrupt, ())  # of threading it might need a lock that is held here
        else:
            before(found)

    sys.unraisablehook = ignored
    try:
        yield
    finally:
        sys.unraisablehook = before


def _interrupt() -> None:
    time.sleep(AGAIN_AFTER)
    # A shell script's background process ignores SIGINT: there it was a server's SIGTERM, which does the same.
    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT if interrupts else signal.SIGTERM)
