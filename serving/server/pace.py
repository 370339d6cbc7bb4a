"""Recent response times of a signature. They decide if a request may run on the event loop's thread."""

import threading

# Handing a request to another thread costs 0.1 ms. A request on the loop's thread blocks all others.
SHORT_SECONDS = 0.005
# A signature's first runs optimise its graph and fill caches.
FIRST_RUNS = 10
_MEMORY = 0.9


class Pace:
    """Response times and body sizes of one signature of one loaded version. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._seconds = self._size = 0.0

    def record(self, size: int, seconds: float) -> None:
        """Records the time of a request of `size` bytes. A slow request counts at once and decays slowly."""
        with self._lock:
            self._runs += 1
            self._seconds = max(seconds, _MEMORY * self._seconds + (1 - _MEMORY) * seconds)
            self._size = _MEMORY * self._size + (1 - _MEMORY) * size if self._runs > 1 else size

    def is_short(self, size: int) -> bool:
        """Returns whether a request of `size` bytes is likely to take less than SHORT_SECONDS."""
        return self._runs >= FIRST_RUNS and self._seconds * max(1.0, size / max(self._size, 1.0)) < SHORT_SECONDS
