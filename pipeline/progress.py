"""What a user sees while a run works: one line a step, on standard error."""

import sys
import time

_started = time.monotonic()


def announce(text: str) -> None:
    print(f"[{time.monotonic() - _started:6.1f}s] {text}", file=sys.stderr, flush=True)
