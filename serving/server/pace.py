"""The latest times of a signature, which say whether a request may run on the event loop's own thread."""

import threading

# The way to a thread and back costs a tenth of a millisecond; a request on the loop's thread keeps all others waiting.
SHORT_SECONDS = 0.005
# A signature's first runs optimise its graph and fill caches.
FIRST_RUNS = 10
_MEMORY = 0.9


class Pace:
    """The latest answers of one signature of one loaded version, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs = 0
        self._seconds = self._size = 0.0

    def record(self, size: int, seconds: float) -> None:
        """Notes the time of a request of `size` bytes. A slow one counts at once, and is forgotten little by little."""
        with self._lock:
            self._runs += 1
            self._seconds = max(seconds, _MEMORY * self._seconds + (1 - _MEMORY) * seconds)
            self._size = _MEMORY * self._size + (1 - _MEMORY) * size if self._runs > 1 else size

    def is_short(self, size: int) -> bool:
        """Returns whether a request of `size` bytes will most likely take less than SHORT_SECONDS."""
        return self._runs >= FIRST_RUNS and self._seconds * max(1.0, size / max(self._size, 1.0)) < SHORT_SECONDS
