"""Recent response times of requests, which decide whether a request may run on the event loop's thread."""

import threading
import weakref
from collections.abc import Hashable
from typing import Any

# Handing a request to another thread costs 0.1 ms. A request on the loop's thread blocks all others.
SHORT_SECONDS = 0.005
# On a busy machine a short request takes so long now and then, because other processes have the processor. In the pool,
# whose threads take the interpreter from each other, the next ones would take as long, and would stay there.
_DISTURBED_SECONDS = 0.02
# A signature's first runs optimise its graph and fill caches.
FIRST_RUNS = 10
_MEMORY = 0.9
_MOST_KINDS = 1000  # beyond it all are forgotten: paths are made up by clients


class Pace:
    """Response times and body sizes of requests of one kind to one loaded version. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._seconds = self._size = self._latest = 0.0

    def record(self, size: int, seconds: float) -> None:
        """Records the time of a request of `size` bytes.

        A slow request counts at once and decays slowly, unless it follows a short one and may have been disturbed.
        """
        with self._lock:
            self._runs += 1
            mean = _MEMORY * self._seconds + (1 - _MEMORY) * seconds
            is_disturbed = self._latest < SHORT_SECONDS <= seconds < _DISTURBED_SECONDS
            self._seconds = mean if is_disturbed else max(seconds, mean)
            self._latest = seconds
            self._size = _MEMORY * self._size + (1 - _MEMORY) * size if self._runs > 1 else size

    def is_short(self, size: int) -> bool:
        """Returns whether a request of `size` bytes is likely to take less than SHORT_SECONDS."""
        return self._runs >= FIRST_RUNS and self._seconds * max(1.0, size / max(self._size, 1.0)) < SHORT_SECONDS


class Paces:
    """The pace of each kind of request. Thread-safe."""

    def __init__(self) -> None:
        self._paces: dict[Hashable, tuple[weakref.ref[Any], Pace]] = {}

    def is_short(self, kind: Hashable, size: int) -> bool:
        """Returns whether a request of `size` bytes is likely to take less than SHORT_SECONDS."""
        known = self._paces.get(kind)
        return known is not None and known[1].is_short(size)

    def record(self, kind: Hashable, servable: Any, size: int, seconds: float) -> None:
        """Records the time of a request. A newly loaded version starts a new record."""
        known = self._paces.get(kind)
        if known is None or known[0]() is not servable:
            if len(self._paces) >= _MOST_KINDS:
                self._paces.clear()
            known = self._paces[kind] = (weakref.ref(servable), Pace())
        known[1].record(size, seconds)
