"""The description of a load on a server."""

import dataclasses
import time

import numpy as np

LEAD = 0.05  # seconds before the first request, for the start time to reach all generators


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """The address of a server for requests of one kind.

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
    """The load that one generator sends.

    Args:
        endpoint: The server.
        connections: Closed loop: the number of clients, each with one request at a time. Open loop: the largest number
            of requests in flight over REST; further requests wait, and the wait counts as latency.
        warm_up: The uncounted seconds from the first request on.
        seconds: The length of the counted window after the warm-up.
        arrivals: Open loop: the seconds after the start at which requests are due, even if earlier ones have no
            response yet (which avoids coordinated omission). None: closed loop.
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
    """Returns the time.perf_counter() at which to begin. All processes of a machine share this clock."""
    return time.perf_counter() + LEAD
