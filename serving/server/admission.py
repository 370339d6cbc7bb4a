"""Admission control for graph runs: a run starts once its memory fits, and few large requests run at a time.

Long requests use at most half of the processors, so short requests of other clients run beside them. A thread that
waits for its turn does not count as busy.
"""

import concurrent.futures
import contextlib
import dataclasses
import math
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from ctrpipe.serving.loader import LoadedServable
from ctrpipe.serving.server.budget import Budget, OverBudget
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.row_cost import RowCost, RowCosts

MOST_WAITING_RUNS = 64  # large requests that wait for their turn, each in a thread
_LARGE_BODY_BYTES = 256 << 10
_LARGE_CONTENT_BYTES = 8 << 20  # which the parsed values and their answer take
_LONG_SECONDS = 0.05
# TensorFlow keeps the interpreter while it takes strings over: 4 ms for four times as many.
_MANY_STRINGS = 1 << 16
# A request that takes more than this runs in pieces, each of which takes about so long or so much.
_UNCUT_SECONDS, _UNCUT_BYTES = 0.5, 256 << 20
_PIECE_SECONDS, _PIECE_BYTES = 0.1, 32 << 20
# A matrix product computes rows in blocks of at most eight, and the rows that are left over by another kernel, which
# rounds differently. Pieces of whole blocks give the same bits as all rows together, whatever else the server does.
_ROW_BLOCK = 16
# The shortest piece for another thread: to wake it takes a tenth of a millisecond. Threads end at about the same time
# if each takes several pieces.
_SHARED_PIECE_SECONDS, _PIECES_A_THREAD = 0.001, 4
_AT_ONCE = contextlib.nullcontext()
_held = threading.local()


class Slots(contextlib.AbstractContextManager[None]):
    """Limits the number of threads inside a block. A thread that is `stepping_aside` is not counted.

    Args:
        count: The number of threads.
        places: Acquired by each thread before the block, and released while it steps aside.
    """

    def __init__(self, count: int, places: threading.Semaphore | None = None):
        self._semaphore = threading.Semaphore(count)
        self._places = places

    def __enter__(self) -> None:
        self._semaphore.acquire()
        _held.slots = self

    def __exit__(self, *error: object) -> None:
        _held.slots = None
        self._semaphore.release()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        self._semaphore.release()
        if self._places:
            self._places.release()
        try:
            yield
        finally:
            if self._places:
                self._places.acquire()
            self._semaphore.acquire()


def stepping_aside() -> contextlib.AbstractContextManager[None]:
    """Inside the block, this thread does not occupy one of its `Slots`, because it only waits."""
    slots: Slots | None = getattr(_held, "slots", None)
    return slots.aside() if slots else contextlib.nullcontext()


@dataclasses.dataclass(frozen=True)
class Turn:
    """A run that may start.

    Attributes:
        seconds_left: Seconds until its deadline; None without one.
        piece_rows: Maximum rows to compute at a time; None = all.
        threads: The number of threads that take pieces.
    """

    seconds_left: float | None
    piece_rows: int | None
    threads: int = 1


class _Lane:
    """Limits the number of running threads. Further threads wait for their turn, and step aside meanwhile.

    Args:
        count: The number of threads.
        waiting: Limits the waiting threads of all lanes together.
    """

    def __init__(self, count: int, waiting: threading.Semaphore):
        self._turns = threading.Semaphore(count)
        self._waiting = waiting

    def enter(self, timeout_seconds: float | None) -> float | None:
        """Waits for a turn, and returns the seconds left.

        Raises:
            OverBudget: too many threads are waiting.
            ServingError: the deadline has passed.
        """
        if self._turns.acquire(blocking=False):
            return timeout_seconds
        began = time.monotonic()
        if not self._waiting.acquire(blocking=False):
            raise OverBudget(f"The server is busy: {MOST_WAITING_RUNS} large requests wait; try again later")
        try:
            with stepping_aside():
                if not self._turns.acquire(timeout=timeout_seconds):
                    raise ServingError("DEADLINE_EXCEEDED", "Timed out waiting for other large requests to end.")
        finally:
            self._waiting.release()
        return None if timeout_seconds is None else timeout_seconds - (time.monotonic() - began)

    def leave(self) -> None:
        self._turns.release()

    @contextlib.contextmanager
    def turn(self, timeout_seconds: float | None) -> Iterator[None]:
        """Holds the thread's turn inside the block."""
        self.enter(timeout_seconds)
        try:
            yield
        finally:
            self.leave()


class Reading(contextlib.AbstractContextManager["Reading"]):
    """Reads and answers a body inside the block. A large body waits for its turn first.

    Args:
        lane: The lane of large bodies.
        size: Bytes of the body.
        timeout_seconds: Seconds until its deadline; None without one.
    """

    def __init__(self, lane: _Lane, size: int, timeout_seconds: float | None):
        self._lane = lane
        self._has_turn = False
        if size > _LARGE_BODY_BYTES:
            self._take_turn(timeout_seconds)

    def weigh(self, memory: int, timeout_seconds: float | None = None) -> None:
        """Waits for the body's turn if its contents need so much memory that it counts as large despite its length.

        100,000 empty examples are 200 kB, but take as long as megabytes of other bodies.

        Raises:
            OverBudget: too many large bodies wait.
            ServingError: the deadline passes before its turn.
        """
        if memory > _LARGE_CONTENT_BYTES and not self._has_turn:
            self._take_turn(timeout_seconds)

    def _take_turn(self, timeout_seconds: float | None) -> None:
        self._lane.enter(timeout_seconds)
        self._has_turn = True

    def __exit__(self, *error: object) -> None:
        if self._has_turn:
            self._lane.leave()


def _whole_blocks(rows: float) -> int:
    """Returns the number of rows, rounded up to whole blocks."""
    return math.ceil(rows / _ROW_BLOCK) * _ROW_BLOCK


class Admission:
    """Limits the processors and the memory of all graph runs together. Thread-safe.

    Args:
        budget: The budget of memory and time of all requests.
        long_runs: Maximum number of concurrent long runs; 0 = half of the processors.

    Attributes:
        shares_rows: Whether idle processors share the rows of a run, because its operations use only one.
        pool: The threads for that.
    """

    def __init__(self, budget: Budget, long_runs: int = 0):
        processors = os.cpu_count() or 1
        waiting = threading.Semaphore(MOST_WAITING_RUNS)
        self.shares_rows = False
        self.pool = concurrent.futures.ThreadPoolExecutor(processors, "rows")
        self._processors = processors
        self._busy = 0  # threads that run a graph
        self._lock = threading.Lock()
        self._budget = budget
        self._costs = RowCosts()
        self._long = _Lane(long_runs or max(processors // 2, 1), waiting)
        self._large = _Lane(processors, waiting)
        self._parsing = _Lane(1, waiting)
        self._measuring = _Lane(1, waiting)

    def holding(self, size: int) -> contextlib.AbstractContextManager[object]:
        """Reserves `size` bytes of the budget inside the block.

        Raises:
            OverBudget: the bytes do not fit next to other requests' reservations.
        """
        return self._budget.hold(size)

    def reading(self, size: int, timeout_seconds: float | None = None) -> "Reading":
        """Reads and answers a body of `size` bytes inside the block. At most one large body per processor is read at a
        time.

        Reading holds the GIL. With one thread per large body, a short request would wait for all of them.

        Raises:
            OverBudget: too many large bodies wait.
            ServingError: the deadline passes before its turn.
        """
        return Reading(self._large, size, timeout_seconds)

    def parsing(self, size: int, timeout_seconds: float | None = None) -> contextlib.AbstractContextManager[None]:
        """Decompresses and parses a body of `size` bytes inside the block. Large bodies are parsed one at a time.

        Parsing holds the GIL, so parallel threads gain nothing, and a short request would wait for each of them.

        Raises:
            OverBudget: too many large bodies wait.
            ServingError: the deadline passes before its turn.
        """
        return self._parsing.turn(timeout_seconds) if size > _LARGE_BODY_BYTES else _AT_ONCE

    def _cost(self, servable: LoadedServable, signature: str, timeout_seconds: float | None) -> RowCost:
        """Returns the cost of a signature's rows. While one request measures it, the others step aside.

        Raises:
            OverBudget: too many requests are waiting.
            ServingError: the deadline passes before the measurement ends.
        """
        if self._costs.is_known(servable, signature):
            return self._costs.of(servable, signature)
        with self._measuring.turn(timeout_seconds):
            return self._costs.of(servable, signature)

    @contextlib.contextmanager
    def admitted(
        self,
        servable: LoadedServable,
        signatures: Iterable[str],
        inputs: Mapping[str, np.ndarray],
        timeout_seconds: float | None = None,
    ) -> Iterator[Turn]:
        """Holds the memory and the turn of a run inside the block, and records the run's time.

        Raises:
            OverBudget: it does not fit next to running and waiting requests.
            ServingError: its deadline passes before its turn.
        """
        rows = max((len(array) for array in inputs.values() if array.ndim), default=1)
        costs = [self._cost(servable, signature, timeout_seconds) for signature in signatures]
        size, seconds = sum(cost.size(rows) for cost in costs), sum(cost.seconds(rows) for cost in costs)
        strings = sum(array.size for array in inputs.values() if array.dtype.hasobject)
        is_long, piece = seconds > _LONG_SECONDS or strings > _MANY_STRINGS, None
        if (seconds > _UNCUT_SECONDS or size > _UNCUT_BYTES) and all(cost.in_pieces for cost in costs):
            pieces = max(seconds / _PIECE_SECONDS, size / _PIECE_BYTES)
            piece = _whole_blocks(rows / pieces)
            size = sum(cost.size(piece) for cost in costs)
        with self._budget.hold(size, seconds if is_long else 0.0):
            if is_long:
                timeout_seconds = self._long.enter(timeout_seconds)
            may_share = self.shares_rows and piece is None and all(cost.in_pieces for cost in costs)
            most = min(int(seconds / _SHARED_PIECE_SECONDS), -(-rows // _ROW_BLOCK)) if may_share else 1  # pieces
            threads = self._take_threads(most)
            if threads > 1:
                piece = _whole_blocks(rows / min(most, threads * _PIECES_A_THREAD))
            began = time.perf_counter()
            try:
                yield Turn(timeout_seconds, piece, threads)
                taken = (time.perf_counter() - began) * threads
                for cost in costs:
                    cost.record(rows, taken / len(costs))
            finally:
                self._give_threads(threads)
                if is_long:
                    self._long.leave()

    def _take_threads(self, wanted: int) -> int:
        """Returns how many threads a run gets: up to `wanted`, as far as processors are idle, and at least one."""
        with self._lock:
            threads = max(min(wanted, self._processors - self._busy), 1)
            self._busy += threads
        return threads

    def _give_threads(self, threads: int) -> None:
        with self._lock:
            self._busy -= threads
