"""One generator at work."""

import contextlib
import time
from collections.abc import Callable

from serving.latency import grpc_load, rest_load
from serving.latency.load import Load, soon
from serving.latency.sample import Recorder, Sample


def drive(load: Load, bodies: list[bytes], start: Callable[[], float] = soon) -> Sample:
    """Sends the bodies in turn, from this process, and measures.

    Args:
        load: How.
        bodies: Request bodies: JSON, or serialized messages.
        start: Called once all is connected; when to begin.
    """
    driver = rest_load.Driver(load) if load.endpoint.protocol == "rest" else grpc_load.Driver(load)
    with contextlib.closing(driver):
        begin = start()
        opens = begin + load.warm_up
        recorder = Recorder(opens, opens + load.seconds)
        time.sleep(max(0.0, begin - time.perf_counter()))
        cpu = time.process_time()
        driver.run(bodies, begin, recorder)
        return recorder.sample(time.process_time() - cpu)
