"""Limits the gRPC calls whose message has not arrived, and cancels calls above the limit.

A client opens a call with a frame of about 100 bytes and may never send the message. grpcio's unary handlers wait for
the message in a thread of the pool, so one such call per thread would block all other clients.

An endless message takes memory before any handler sees it. Its call also counts as waiting: if the process exceeds its
budget, the calls that have waited longest are cancelled, and gRPC frees their partial messages.

One thread of grpcio receives the messages of all connections. It holds the GIL while it copies a message: 5 ms for 10
MB. A client that gets answers cannot saturate that thread, because answering takes longer than copying. Refusing is
fast, so a few clients with refused messages could saturate it. After a refusal, a connection's large messages are
therefore received one at a time.
"""

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

import grpc

from ctrpipe.common.memory import return_unused_pages
from ctrpipe.serving.server.budget import Budget
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.grpc_messages import plain_message
from ctrpipe.serving.server.unread import Unread

MOST_WAITING = 256
_LOOK_SECONDS = 0.05
_MOMENT_SECONDS = 0.1
_SMALL_BYTES = 1 << 20
_FREE_BYTES = 4 << 10  # of an answer, not counted
_COPIES = 2  # grpcio keeps an answer as Python's bytes and as its own
_LARGE_BYTES = 1 << 20  # of a message whose copy is felt
_MOST_REFUSED = 4096  # connections that are remembered
_TURN_SECONDS = 0.5  # until the next message is received although the first has not arrived
_UNREAD_SECONDS = 50.0  # which a client has to read an answer, as over REST
_QUICK_SECONDS = 0.5  # the same, where memory is short


class _Call(NamedTuple):
    since: float  # on the monotonic clock
    context: grpc.ServicerContext
    peer: str  # gRPC makes this text anew whenever it is asked


class Calls:
    """Calls by age and by connection. Not thread-safe."""

    def __init__(self) -> None:
        self._peers: dict[str, dict[int, grpc.ServicerContext]] = {}  # by connection, and by age
        self._calls: dict[int, _Call] = {}  # by age

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, context: grpc.ServicerContext) -> None:
        key, peer = id(context), context.peer()
        self._calls[key] = _Call(time.monotonic(), context, peer)
        self._peers.setdefault(peer, {})[key] = context

    def remove(self, context: grpc.ServicerContext) -> None:
        """Removes a call, if present."""
        key = id(context)
        call = self._calls.pop(key, None)
        if call:
            calls = self._peers[call.peer]
            del calls[key]
            if not calls:
                del self._peers[call.peer]

    def pop_of_largest(self) -> grpc.ServicerContext:
        """Removes and returns the oldest call of the connection with the most calls."""
        calls = max(self._peers.values(), key=len)
        context = next(iter(calls.values()))
        self.remove(context)
        return context

    def pop_older_half(self, latest: float) -> list[grpc.ServicerContext]:
        """Removes and returns the older half of the calls that arrived before `latest`, on the monotonic clock."""
        calls = [call.context for call in self._calls.values() if call.since <= latest]
        older = calls[: (len(calls) + 1) // 2]
        for context in older:
            self.remove(context)
        return older

    def pop_all(self) -> list[grpc.ServicerContext]:
        """Removes and returns all calls."""
        calls = [call.context for call in self._calls.values()]
        self._calls.clear()
        self._peers.clear()
        return calls


class Arrivals:
    """The calls that wait for their message. Above `most`, cancels the oldest call of the connection with the most
    calls.

    A well-behaved client sends the message with the first frames or some milliseconds later. Its connection has few
    waiting calls, so its calls are not cancelled, however fast another connection opens or resets calls.

    An answer counts until its client has read it.

    Args:
        most: Maximum number of waiting calls.
        budget: The memory of all requests.
    """

    def __init__(self, budget: Budget, most: int = MOST_WAITING):
        self._most = most
        self._budget = budget
        self._unread = Unread(budget)
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._waiting = Calls()
        self._refused: dict[str, None] = {}  # connections whose last large message was refused, by age
        self._turn = threading.Semaphore()
        self._running = 0

    @contextlib.contextmanager
    def waiting(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Counts a call as waiting until the block ends."""
        with self._lock:
            self._waiting.add(context)
            gives_way = self._waiting.pop_of_largest() if len(self._waiting) > self._most else None
        if gives_way:
            gives_way.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.remove(context)

    def start(self) -> None:
        """Starts to monitor the memory of the process, until `close`."""
        threading.Thread(target=self._watch, name="arrivals", daemon=True).start()

    def close(self) -> None:
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            self.relieve()
            self._unread.expire(_UNREAD_SECONDS)

    def relieve(self) -> None:
        """Frees memory if the process exceeds its limit.

        Drops unread answers first, then the older half of the waiting calls. A call that has waited only for a moment
        stays, because its message may still be arriving.
        """
        if not (self._waiting or self._unread.size) or self._budget.excess() <= 0:
            return
        self._unread.expire(_QUICK_SECONDS)
        return_unused_pages()
        if self._budget.excess() <= 0:
            return
        with self._lock:
            older = self._waiting.pop_older_half(time.monotonic() - _MOMENT_SECONDS)
        for context in older:
            context.cancel()

    def cancel_all(self) -> None:
        """Cancels all waiting calls."""
        with self._lock:
            calls = self._waiting.pop_all()
        for context in calls:
            context.cancel()

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Counts a call as running until the block ends."""
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def is_idle(self) -> bool:
        """Returns whether no call runs and all answers were read."""
        return not self._running and self._unread.size == 0

    def answered(self, context: grpc.ServicerContext, size: int) -> None:
        """Counts an answer as unread until its client has read it or has disconnected."""
        if size <= _FREE_BYTES:
            return
        key = object()
        self._unread.add(key, _COPIES * size, context.cancel)
        if not context.add_callback(functools.partial(self._unread.remove, key)):
            self._unread.remove(key)  # the call has ended

    def message(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Waits for the message of a call and returns it.

        Raises:
            grpc.RpcError: the call has ended, or was cancelled because too many calls wait.
            Exception: the call ended without a message, and its status was set.
        """
        with self.waiting(context), self._one_at_a_time(context):
            message = next(requests, None)
        if message is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "The method requires exactly one request message.")
            raise AssertionError("abort raises")
        return message

    @contextlib.contextmanager
    def _one_at_a_time(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Waits for the turn of a connection whose last large message was refused. Other connections do not wait."""
        is_held = bool(self._refused) and context.peer() in self._refused
        waits = is_held and self._turn.acquire(timeout=_TURN_SECONDS)
        try:
            yield
        finally:
            if waits:
                self._turn.release()

    @contextlib.contextmanager
    def taking(self, context: grpc.ServicerContext, size: int) -> Iterator[None]:
        """Records whether the block answers a message of `size` bytes, or refuses it with an error."""
        try:
            yield
        except BaseException:
            self._note(context, size, is_refused=True)
            raise
        self._note(context, size, is_refused=False)

    def _note(self, context: grpc.ServicerContext, size: int, is_refused: bool) -> None:
        if size < _LARGE_BYTES:
            return
        peer = context.peer()
        with self._lock:
            self._refused.pop(peer, None)
            if is_refused:
                self._refused[peer] = None
                if len(self._refused) > _MOST_REFUSED:
                    del self._refused[next(iter(self._refused))]

    def small_message(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Waits for a message of a few bytes, and returns it decompressed.

        Raises:
            grpc.RpcError: as `message`.
            Exception: as `message`, or the message is damaged or too large.
        """
        body = self.message(requests, context)
        try:
            with self._budget.hold() as held:
                return plain_message(body, _SMALL_BYTES, held)
        except ServingError as error:
            context.abort(grpc.StatusCode[error.code], error.message or "")
            raise AssertionError("abort raises") from error
