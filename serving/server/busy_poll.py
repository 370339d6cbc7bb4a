"""Busy polling, as network drivers do it: the loop looks for the next request for a moment before it goes to sleep.

A processor that sleeps is slow to wake, in a virtual machine above all, and runs slowly at first.
"""

import asyncio
import time


class BusyPoll:
    """Keeps an event loop awake between requests that follow one another closely; a quiet server sleeps.

    Args:
        seconds: How long after an answer; 0 = never. Requests further apart than that are not waited for.
    """

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._answered = float("-inf")
        self._follows = False
        self._looking = False

    def asked(self) -> None:
        """Notes that a request has started."""
        self._follows = time.perf_counter() - self._answered < self._seconds

    def answered(self, loop: asyncio.AbstractEventLoop) -> None:
        """Notes that it was answered; keeps the loop awake if requests follow one another closely."""
        self._answered = time.perf_counter()
        if self._follows and not self._looking:
            self._looking = True
            loop.call_soon(self._look, loop)

    def stop(self) -> None:
        """Lets the loop sleep: others need the processor."""
        self._answered = float("-inf")

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        # A callback that is due keeps the loop from sleeping; between two of them it asks for what has arrived.
        if time.perf_counter() - self._answered < self._seconds:
            loop.call_soon(self._look, loop)
        else:
            self._looking = False
