"""Busy polling, as in network drivers: the event loop polls for the next request before it sleeps.

A sleeping processor wakes slowly, especially in a virtual machine, and is slow at first.
"""

import asyncio
import time


class BusyPoll:
    """Keeps an event loop awake between requests that follow one another closely. An idle server sleeps.

    Args:
        seconds: How long to poll after a response; 0 = never. The loop polls only after a request that began within
            this time of the previous response.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._answered = float("-inf")
        self._follows = False
        self._looking = False

    def asked(self) -> None:
        """Records that a request has started."""
        self._follows = time.perf_counter() - self._answered < self._seconds

    def answered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Records that a request was answered. Keeps the loop awake if requests follow one another closely."""
        self._answered = time.perf_counter()
        if self._follows and not self._looking:
            self._looking = True
            loop.call_soon(self._look, loop)

    def stop(self) -> None:
        """Lets the loop sleep, because other threads need the processor."""
        self._answered = float("-inf")

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        # A due callback keeps the loop from sleeping. Between two callbacks, the loop checks for new data.
        if time.perf_counter() - self._answered < self._seconds:
            loop.call_soon(self._look, loop)
        else:
            self._looking = False
