"""gRPC calls whose message has not arrived: how many there may be, and which of them gives way.

A client opens a call with a frame of some 100 bytes, and may leave the message out for ever. grpcio's handlers of one
message wait for it in a thread of the pool, so that as many such calls as the pool has threads keep everybody out.
"""

import contextlib
import threading
from collections.abc import Iterator

import grpc

MOST_WAITING = 256


class Arrivals:
    """The calls that wait for their client. Above `most` of them the one that has waited longest is cancelled.

    The message of a call that means to be answered comes with its first frames, or some milliseconds later: such a call
    is never the one that has waited longest, unless `most` others come in that time.
    """

    def __init__(self, most: int = MOST_WAITING):
        self._most = most
        self._lock = threading.Lock()
        self._waiting: dict[int, grpc.ServicerContext] = {}  # by age

    @contextlib.contextmanager
    def waiting(self, context: grpc.ServicerContext) -> Iterator[None]:
        """Counts a call among those that wait, until the block ends."""
        with self._lock:
            self._waiting[id(context)] = context
            oldest = self._waiting.pop(next(iter(self._waiting))) if len(self._waiting) > self._most else None
        if oldest:
            oldest.cancel()
        try:
            yield
        finally:
            with self._lock:
                self._waiting.pop(id(context), None)

    def message(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
        """Waits for the message of a call and returns it.

        Raises:
            grpc.RpcError: the call has ended, or was cancelled because too many others wait.
            Exception: the call has ended without a message, and was answered so.
        """
        with self.waiting(context):
            message = next(requests, None)
        if message is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "The method requires exactly one request message.")
            raise AssertionError("abort raises")
        return message
