"""Measures for how long work holds the interpreter."""

import sys
import threading
import time

from ctrpipe.serving.server.core import SWITCH_SECONDS


def longest_hold(work):
    """Returns the longest CPU time of the process during which another thread waited to run."""
    holds, stop = [], threading.Event()

    def watch():
        last = time.process_time()
        while not stop.is_set():
            time.sleep(0.0002)
            now = time.process_time()
            holds.append(now - last)
            last = now

    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        thread = threading.Thread(target=watch)
        thread.start()
        time.sleep(0.01)
        del holds[:]
        work()
        stop.set()
        thread.join()
    finally:
        sys.setswitchinterval(before)
    return max(holds)
