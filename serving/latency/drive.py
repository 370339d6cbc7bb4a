"""Sends a load from one generator process and measures it."""

import contextlib
import time
from collections.abc import Callable
from typing import Protocol

from ctrpipe.serving.latency import grpc_load, rest_load
from ctrpipe.serving.latency.load import Load, soon
from ctrpipe.serving.latency.sample import LatencySample, Recorder


class LoadDriver(Protocol):
    """Interface of a driver that sends requests over one protocol: RestDriver, GrpcDriver."""

    def run(self, bodies: list[bytes], begin: float, recorder: Recorder) -> None:
        """Sends the bodies in turn, from `begin` (time.perf_counter) until the recorder closes."""

    def close(self) -> None:
        """Closes the connections."""


def drive(load: Load, bodies: list[bytes], start: Callable[[], float] = soon) -> LatencySample:
    """Sends the bodies in turn from this process, and returns the sample of the requests.

    Args:
        load: The connections, rate and duration.
        bodies: Request bodies: JSON, or serialized messages.
        start: Called once all connections are open. Returns the time.perf_counter() at which to begin.
    """
    is_rest = load.endpoint.protocol == "rest"
    driver: LoadDriver = rest_load.RestDriver(load) if is_rest else grpc_load.GrpcDriver(load)
    with contextlib.closing(driver):
        begin = start()
        opens = begin + load.warm_up
        recorder = Recorder(opens, opens + load.seconds)
        time.sleep(max(0.0, begin - time.perf_counter()))
        cpu = time.process_time()
        driver.run(bodies, begin, recorder)
        return recorder.sample(time.process_time() - cpu)
