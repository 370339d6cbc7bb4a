"""Load on a server: what one generator is told, and how it says hello. Imports nothing that takes long to load."""

import dataclasses
import time

import numpy as np

from serving.latency.sample import Recorder, Sample


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """Where requests go.

    Attributes:
        protocol: `rest` or `grpc`.
        address: HOST:PORT.
        path: `/v1/models/NAME:predict`, or the method of the gRPC service.
    """

    protocol: str
    address: str
    path: str


@dataclasses.dataclass(frozen=True)
class Load:
    """What one generator does.

    Args:
        endpoint: Where to.
        connections: Closed loop: as many clients, each with one request at a time. Open loop: at most so many requests
            on their way at once over REST; the others wait, and their latency runs.
        begin: time.perf_counter() of the first request; the same clock in all processes of a machine.
        warm_up: Seconds from there on that are not counted.
        seconds: Length of the window that is.
        arrivals: Open loop: seconds after `begin` at which requests are due, whatever became of those before
            (which is what coordinated omission leaves out). None: closed loop.
        timeout: Seconds after which a request is given up.
    """

    endpoint: Endpoint
    connections: int
    begin: float
    warm_up: float
    seconds: float
    arrivals: np.ndarray | None = None
    timeout: float = 30.0

    @property
    def opens(self) -> float:
        return self.begin + self.warm_up

    @property
    def closes(self) -> float:
        return self.opens + self.seconds


def poisson(rate: float, seconds: float, seed: int) -> np.ndarray:
    """Arrival times of a Poisson process in [0, seconds), sorted."""
    random = np.random.default_rng(seed)
    return np.sort(random.uniform(0, seconds, random.poisson(rate * seconds)))


def drive(load: Load, bodies: list[bytes]) -> Sample:
    """Sends the bodies in turn, from this process, and measures.

    Args:
        load: How.
        bodies: Request bodies: JSON, or serialized messages.
    """
    from serving.latency import grpc_load, rest_load

    drivers = {"rest": rest_load.drive, "grpc": grpc_load.drive}
    recorder = Recorder(load.opens, load.closes)
    time.sleep(max(0.0, load.begin - time.perf_counter()))
    cpu = time.process_time()
    drivers[load.endpoint.protocol](load, bodies, recorder)
    return recorder.sample(time.process_time() - cpu)
