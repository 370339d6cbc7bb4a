"""What a user sees while a run works: one line a step, on standard error."""

import sys
import time
from collections.abc import Callable

_started = time.monotonic()


def announce(text: str) -> None:
    print(f"[{time.monotonic() - _started:6.1f}s] {text}", file=sys.stderr, flush=True)


def now_and_then(seconds: float = 10.0) -> Callable[[str], None]:
    """Announces a text of a stage that says more than anybody wants to read: one in `seconds`, the first after them."""
    last = time.monotonic()

    def say(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= seconds:
            last = time.monotonic()
            announce(text)

    return say
