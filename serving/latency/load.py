"""The description of a load on a server. Imports nothing that takes long to load."""

import dataclasses
import time

import numpy as np

LEAD = 0.05  # seconds in which all generators hear of the load before its first request is due


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
        warm_up: Seconds from the first request on that are not counted.
        seconds: Length of the window that is.
        arrivals: Open loop: seconds after the begin at which requests are due, whatever became of those before
            (which is what coordinated omission leaves out). None: closed loop.
        timeout: Seconds after which a request is given up.
    """

    endpoint: Endpoint
    connections: int
    warm_up: float
    seconds: float
    arrivals: np.ndarray | None = None
    timeout: float = 30.0


def poisson(rate: float, seconds: float, seed: int) -> np.ndarray:
    """Returns the arrival times of a Poisson process in [0, seconds), sorted."""
    random = np.random.default_rng(seed)
    return np.sort(random.uniform(0, seconds, random.poisson(rate * seconds)))


def soon() -> float:
    """Returns a time.perf_counter() at which to begin; all processes of a machine have the same clock."""
    return time.perf_counter() + LEAD
