"""The memory and time budget that all requests of the process share.

A limit per request does not stop a hundred requests from exhausting the machine. Each cost is therefore reserved before
it arises: before a body is decompressed, parsed or filled, and before the graph runs. A request that does not fit is
refused with 503 over REST and RESOURCE_EXHAUSTED over gRPC, and the client may try again.

How to use it, with `core.budget`:

    with budget.hold(len(body)) as held:          # refuses, or counts the bytes until the block ends
        held.grow(plain_size)                     # before it is decompressed
        held.grow(estimate_of_parsing(plain))     # before it is parsed
        ...
        held.shrink(plain_size)                   # what is given back before the block ends

A body that arrives in pieces grows its reservation piece by piece. `Held.close` ends a reservation that outlives a
block, and may be called twice. `ServedVersion.run` reserves the memory and the seconds of the graph, so the protocols
do not count them.
"""

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from ctrpipe.common.machine_memory import memory_limit, resident_bytes
from ctrpipe.common.memory import return_unused_pages
from ctrpipe.serving.server.errors import ServingError

# Work that is admitted and not done: a request that came after it would wait as long, its default time limit.
MOST_SECONDS = 30.0
# What requests may take if the models alone fill --max_memory.
_LEAST_SHARE = 8
# Smaller pieces are counted, without a look at what the process really takes.
_LOOK_BYTES = 1 << 20
_TRIM_SECONDS = 1.0


class OverBudget(ServingError):
    """Raised if a request does not fit next to the running ones. REST answers 503: the client may try again."""

    def __init__(self, message: str):
        super().__init__("RESOURCE_EXHAUSTED", message)

    @property
    def http_status(self) -> int:
        return 503


class Budget:
    """Counts the reservations of running requests, and refuses a request that would exceed the limit. Thread-safe.

    Args:
        max_memory: Maximum memory of the process with its models, in bytes; 0 = half of the machine's or the
            container's memory.
        most_seconds: Maximum seconds of waiting and running work.
        resident: Returns the current memory of the process, in bytes.

    Attributes:
        max_memory: Maximum memory of the process, in bytes.
        held_bytes: Bytes reserved now.
        held_seconds: Seconds of work reserved now.
    """

    def __init__(
        self,
        max_memory: int = 0,
        most_seconds: float = MOST_SECONDS,
        resident: Callable[[], int] = resident_bytes,
    ):
        self.max_memory = max_memory or memory_limit() // 2
        self.held_bytes = 0
        self.held_seconds = 0.0
        self._most_seconds = most_seconds
        self._resident = resident
        self._lock = threading.Lock()
        self._trimmed = 0.0
        self._base = 0
        self.measure_base()

    def measure_base(self) -> None:
        """Measures the memory of the process without requests. Called after a version is loaded or unloaded."""
        with self._lock:
            self._base = max(self._resident() - self.held_bytes, 0)

    @property
    def most_bytes(self) -> int:
        """Bytes available to all requests: what the models leave, and at least an eighth of `max_memory`."""
        return max(self.max_memory - self._base, self.max_memory // _LEAST_SHARE)

    def hold(self, size: int = 0, seconds: float = 0.0) -> "Held":
        """Reserves `size` bytes and `seconds` of work until the end of the block, or until `close`.

        Raises:
            OverBudget: they do not fit next to other requests' reservations.
        """
        self._take(size, seconds)
        return Held(self, size, seconds)

    def excess(self) -> int:
        """Returns the bytes by which the process exceeds its limit; 0 or less if it does not."""
        return self._resident() - self._ceiling()

    def _ceiling(self) -> int:
        return self._base + self.most_bytes

    def _take(self, size: int, seconds: float) -> None:
        if size >= _LOOK_BYTES:
            self._look(size)
        with self._lock:
            if size and self.held_bytes + size > self.most_bytes:
                raise self._too_large(size, self.held_bytes)
            if seconds and self.held_seconds and self.held_seconds + seconds > self._most_seconds:
                raise OverBudget(
                    f"The server is busy: work of about {self.held_seconds:.0f} seconds waits, and this request takes "
                    f"about {seconds:.1f} seconds more; try again later"
                )
            self.held_bytes += size
            self.held_seconds += seconds

    def _look(self, size: int) -> None:
        """Checks the real memory of the process before a large reservation, in case an estimate was too low."""
        resident = self._resident()
        if resident + size <= self._ceiling():
            return
        with self._lock:
            now = time.monotonic()
            trims = now - self._trimmed >= _TRIM_SECONDS
            self._trimmed = now if trims else self._trimmed
        if trims:
            return_unused_pages()
            resident = self._resident()
        if resident + size > self._ceiling():
            raise self._too_large(size, resident - self._base)

    def _too_large(self, size: int, used: int) -> OverBudget:
        return OverBudget(
            f"The server is busy: this request takes about {size} bytes of memory, and others take {max(used, 0)} of "
            f"the {self.most_bytes} that --max_memory={self.max_memory} leaves for requests; try again later, or send "
            "fewer rows at a time"
        )

    def _give_back(self, size: int, seconds: float) -> None:
        with self._lock:
            self.held_bytes -= size
            # Sums of floats keep a rest; it must not count as work that waits.
            self.held_seconds = self.held_seconds - seconds if self.held_seconds - seconds > 1e-9 else 0.0


class Held(contextlib.AbstractContextManager["Held"]):
    """The reservation of one request. Only one thread at a time may change it.

    Attributes:
        size: Bytes reserved now.
        seconds: Seconds of work reserved now.
    """

    __slots__ = ("_budget", "seconds", "size")

    def __init__(self, budget: Budget, size: int, seconds: float):
        self._budget = budget
        self.size = size
        self.seconds = seconds

    def grow(self, size: int = 0, seconds: float = 0.0) -> None:
        """Reserves more.

        Raises:
            OverBudget: it does not fit; the former reservation remains.
        """
        self._budget._take(size, seconds)
        self.size += size
        self.seconds += seconds

    def shrink(self, size: int) -> None:
        """Releases bytes early."""
        size = min(size, self.size)
        self.size -= size
        self._budget._give_back(size, 0.0)

    def close(self) -> None:
        """Releases everything. A second call does nothing."""
        size, seconds, self.size, self.seconds = self.size, self.seconds, 0, 0.0
        self._budget._give_back(size, seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
