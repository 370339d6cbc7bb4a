"""Limits the answers that clients have not read yet, and drops answers above the limit.

A request of 40 bytes may have an answer of a megabyte, which stays in memory until the client reads it. A client may
open many connections and never read.
"""

import dataclasses
import threading
import time
from collections.abc import Callable, Hashable

from ctrpipe.serving.server.budget import Budget, Held, OverBudget

_SHARE = 4  # the part of what requests may hold that is for answers


@dataclasses.dataclass
class _Answer:
    held: Held
    drop: Callable[[], None]
    since: float


class Unread:
    """The unread answers. Thread-safe.

    Above a quarter of the budget, the answers that have waited longest are dropped.

    Args:
        budget: The memory of all requests.

    Attributes:
        size: Bytes of all unread answers.
    """

    def __init__(self, budget: Budget):
        self.size = 0
        self._budget = budget
        self._lock = threading.Lock()
        self._answers: dict[Hashable, _Answer] = {}  # by age

    def add(self, key: Hashable, size: int, drop: Callable[[], None]) -> None:
        """Counts an answer until `remove` is called.

        Args:
            key: Identifies the answer.
            size: The answer's size in bytes.
            drop: Drops the answer and frees its memory. May be called from any thread, even before this call returns.
        """
        dropped = []
        with self._lock:
            while self.size + size > self._budget.most_bytes // _SHARE and self._answers:
                dropped.append(self._take(next(iter(self._answers))))
            try:
                held = self._budget.hold(size)
            except OverBudget:
                dropped.append(drop)
            else:
                self._answers[key] = _Answer(held, drop, time.monotonic())
                self.size += size
        for each in dropped:
            each()

    def remove(self, key: Hashable) -> None:
        """Records that an answer has been read or has ended. It may already have been dropped."""
        with self._lock:
            if key in self._answers:
                self._take(key)

    def expire(self, seconds: float) -> None:
        """Drops the answers that have waited longer than `seconds`."""
        end, dropped = time.monotonic() - seconds, []
        with self._lock:
            for key in [key for key, answer in self._answers.items() if answer.since < end]:
                dropped.append(self._take(key))
        for each in dropped:
            each()

    def _take(self, key: Hashable) -> Callable[[], None]:
        answer = self._answers.pop(key)
        self.size -= answer.held.size
        answer.held.close()
        return answer.drop
