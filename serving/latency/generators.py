"""Processes that send load to a server, separate from the process that calls the model."""

import contextlib
import gc
import itertools
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

from ctrpipe.common.processes import child_process
from ctrpipe.serving.latency.drive import drive
from ctrpipe.serving.latency.load import Endpoint, Load, poisson, soon
from ctrpipe.serving.latency.sample import LatencySample, together

PATIENCE = 60.0  # seconds after a load's end until a generator counts as dead


class Generators(contextlib.AbstractContextManager["Generators"]):
    """A pool of generator processes.

    They share the clients of a closed loop, and the rate and connections of an open loop.

    Args:
        count: The number of processes.
        seed: The seed of the arrival times.
    """

    def __init__(self, count: int, seed: int = 1):
        self._seeds = itertools.count(seed)
        self._stack = contextlib.ExitStack()
        self._pipes: list[Connection] = [self._stack.enter_context(child_process(_work)) for _ in range(count)]
        for pipe in self._pipes:
            self._answer(pipe, PATIENCE)

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def closed(
        self, endpoint: Endpoint, bodies: Sequence[bytes], clients: int, warm_up: float, seconds: float
    ) -> LatencySample:
        """Measures a closed loop of `clients` clients, each with one request at a time."""
        shares = [clients // len(self._pipes) + (i < clients % len(self._pipes)) for i in range(len(self._pipes))]
        return self._run(bodies, [Load(endpoint, share, warm_up, seconds) for share in shares if share])

    def open(
        self,
        endpoint: Endpoint,
        bodies: Sequence[bytes],
        connections: int,
        rate: float,
        warm_up: float,
        seconds: float,
        timeout: float = 30.0,
    ) -> LatencySample:
        """Measures an open loop of Poisson arrivals, on average `rate` per second."""
        count = min(len(self._pipes), connections)
        loads = []
        for _ in range(count):
            arrivals = poisson(rate / count, warm_up + seconds, next(self._seeds))
            loads.append(Load(endpoint, connections // count, warm_up, seconds, arrivals, timeout))
        return self._run(bodies, loads)

    def _run(self, bodies: Sequence[bytes], loads: list[Load]) -> LatencySample:
        pipes = self._pipes[: len(loads)]
        for pipe, load in zip(pipes, loads, strict=True):
            pipe.send((load, list(bodies)))
        for pipe in pipes:
            self._answer(pipe, PATIENCE)  # connected
        begin = soon()
        for pipe in pipes:
            pipe.send(begin)
        seconds = max(load.warm_up + load.seconds + load.timeout for load in loads)
        return together([self._answer(pipe, seconds) for pipe in pipes])

    def _answer(self, pipe: Connection, seconds: float) -> Any:
        if not pipe.poll(max(0.0, seconds) + PATIENCE):
            raise RuntimeError("a load generator does not end")
        answer = pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer


def _work(pipe: Connection) -> None:
    """Runs the loads from the pipe and sends back their samples, until the pipe closes."""
    gc.disable()
    pipe.send(None)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            load, bodies = pipe.recv()

            def start() -> float:
                pipe.send(None)
                return float(pipe.recv())

            gc.collect()
            gc.freeze()
            try:
                pipe.send(drive(load, bodies, start))
            except Exception as error:
                pipe.send(error)
