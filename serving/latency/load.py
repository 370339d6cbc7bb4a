"""The description of a load on a server."""

import dataclasses
import time

import numpy as np

LEAD = 0.05  # seconds from the agreement on a start to the first request, for all generators to be told


@dataclasses.dataclass(frozen=True)
class Endpoint:
    """A server's address for requests of one kind.

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
        connections: Closed loop: the clients, each with one request at a time. Open loop: the most requests under way
            at once over REST; the others wait, which counts as their latency.
        warm_up: Seconds from the first request on that are not counted.
        seconds: Length of the window after that which is counted.
        arrivals: Open loop: seconds after the start at which requests are due, whether those before were answered or
            not (else the sample would have coordinated omission). None: closed loop.
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
    """Returns the time.perf_counter() at which to begin, the same clock in all processes of a machine."""
    return time.perf_counter() + LEAD
