"""Compares two servers of one model on this machine: request by request, in random order.

Two benchmarks that run one after the other differ by the other load on the machine. Here each body goes to both
servers, one right after the other, in an order drawn for each pair.
"""

import contextlib
import dataclasses
import gc
import math
import select
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Self

import grpc
import httptools
import numpy as np
import numpy.typing as npt
from scipy import stats

from ctrpipe.serving.latency.generators import Generators
from ctrpipe.serving.latency.grpc_load import OPTIONS
from ctrpipe.serving.latency.load import Endpoint, Load
from ctrpipe.serving.latency.rest_load import Connection, message

TIMEOUT = 30.0  # seconds that a request may take
LEVEL = 0.95  # of the intervals
_FEWEST_BLOCKS = 4
_RESAMPLES, _AT_ONCE = 1000, 100
_BLOCK = 16  # consecutive pairs that are drawn together: the machine's state lasts for several requests

Floats = npt.NDArray[np.float64]
Ask = Callable[[bytes], None]
Bodies = tuple[Sequence[bytes], Sequence[bytes]]


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A ratio of the first server's number to the second's, and its 95% interval."""

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class BothServers:
    """Paired numbers of both servers, [N] each, and the errors of each server by reason."""

    first: Floats
    second: Floats
    errors: tuple[dict[str, int], dict[str, int]]

    def and_then(self, later: Self) -> Self:
        """Returns these numbers followed by later ones."""
        errors = [dict(Counter(mine) + Counter(more)) for mine, more in zip(self.errors, later.errors, strict=True)]
        first, second = np.concatenate([self.first, later.first]), np.concatenate([self.second, later.second])
        return type(self)(first, second, (errors[0], errors[1]))


class Pairs(BothServers):
    """Seconds of the requests that both servers answered."""


class Rates(BothServers):
    """Answers per second in windows."""


class _Failed(Exception):
    """Raised if a request gets no valid answer; the text is the reason."""


@contextlib.contextmanager
def caller(endpoint: Endpoint) -> Iterator[Ask]:
    """Opens one connection. Yields a function that sends a body and waits for the answer."""
    if endpoint.protocol == "grpc":
        with grpc.insecure_channel(endpoint.address, OPTIONS) as channel:
            call = channel.unary_unary(endpoint.path)

            def ask(body: bytes) -> None:
                try:
                    call(body, timeout=TIMEOUT)
                except grpc.RpcError as error:
                    raise _Failed(error.code().name) from error

            yield ask
        return
    connection, load = Connection(endpoint.address, TIMEOUT), Load(endpoint, 1, 0.0, 0.0)
    requests: dict[bytes, bytes] = {}
    try:

        def post(body: bytes) -> None:
            if body not in requests:
                requests[body] = message(load, body)
            status = _post(connection, requests[body])
            if status != 200:
                raise _Failed(f"HTTP {status}")

        yield post
    finally:
        connection.close()


def _post(connection: Connection, request: bytes) -> int:
    """Sends a request and returns the status of its answer."""
    end = time.monotonic() + TIMEOUT
    try:
        connection.start(request, 0.0, 0.0)
        while True:
            readable, _, _ = select.select([connection], [connection] if connection.unsent else [], [], TIMEOUT)
            if readable and (status := connection.receive()) is not None:
                return status
            if connection.unsent:
                connection.send()
            if time.monotonic() > end:
                raise TimeoutError
    except (OSError, httptools.HttpParserError) as error:
        connection.close()
        raise _Failed(type(error).__name__) from error


def ask_in_turns(
    asks: tuple[Ask, Ask], bodies: Bodies, seconds: float, random: np.random.Generator, warm_up: float = 0.0
) -> Pairs:
    """Sends each request to both servers, in an order drawn for each pair.

    Args:
        asks: The calls of both servers.
        bodies: The requests, separately for each server because the models' names may differ; sent in turn.
        seconds: The duration.
        random: Draws the order.
        warm_up: Uncounted seconds before the measurement.
    """
    taken: tuple[list[float], list[float]] = ([], [])
    errors: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    clock = time.perf_counter
    opens = clock() + warm_up
    closes, index = opens + seconds, 0
    collecting = gc.isenabled()
    gc.disable()  # avoid pauses, like the generators
    try:
        while (now := clock()) < closes:
            pair = [math.nan, math.nan]
            for side in (0, 1) if random.random() < 0.5 else (1, 0):
                began = clock()
                try:
                    asks[side](bodies[side][index % len(bodies[side])])
                    pair[side] = clock() - began
                except _Failed as error:
                    errors[side][str(error)] += now >= opens
            index += 1
            if now >= opens and not any(map(math.isnan, pair)):
                for side in (0, 1):
                    taken[side].append(pair[side])
    finally:
        if collecting:
            gc.enable()
    counted = tuple({reason: count for reason, count in of_side.items() if count} for of_side in errors)
    return Pairs(np.array(taken[0]), np.array(taken[1]), (counted[0], counted[1]))


def ratio_of_percentiles(pairs: Pairs, percentile: float, random: np.random.Generator) -> Ratio | None:
    """Returns the ratio of a percentile of both servers' latencies, with a bootstrap over blocks of pairs.

    None if there are too few pairs for four blocks.
    """
    blocks = len(pairs.first) // _BLOCK
    if blocks < _FEWEST_BLOCKS:
        return None
    resampled = [
        first / second
        for _ in range(_RESAMPLES // _AT_ONCE)
        for first, second in _drawn_percentiles(pairs, blocks, percentile, random)
    ]
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    first, second = (float(np.percentile(values, percentile)) for values in (pairs.first, pairs.second))
    value = first / second  # of all pairs, also of those after the last whole block
    return Ratio(value, min(float(low), value), max(float(high), value))


def _drawn_percentiles(pairs: Pairs, blocks: int, percentile: float, random: np.random.Generator) -> Floats:
    """Returns the percentile of both servers' latencies in bootstrap samples of blocks, (_AT_ONCE, 2).

    A sample is represented by the number of draws of each block, so the latencies are sorted only once.
    """
    often = random.multinomial(blocks, np.full(blocks, 1 / blocks), size=_AT_ONCE)
    percentiles = []
    for values in (pairs.first[: blocks * _BLOCK], pairs.second[: blocks * _BLOCK]):
        order = np.argsort(values)
        below = np.cumsum(often[:, order // _BLOCK], axis=1)
        percentiles.append(values[order[np.argmax(below >= percentile / 100 * below[:, -1:], axis=1)]])
    return np.stack(percentiles, axis=1)


def ratio_of_rates(rates: Rates) -> Ratio | None:
    """Returns the geometric mean of the ratios of paired windows, with Student's interval.

    Returns None if both servers answered in fewer than two pairs of windows.
    """
    logs = [math.log(one / other) for one, other in zip(rates.first, rates.second, strict=True) if one and other]
    if len(logs) < 2:
        return None
    mean, error = float(np.mean(logs)), float(stats.sem(logs))
    width = float(stats.t.ppf((1 + LEVEL) / 2, len(logs) - 1)) * error
    return Ratio(math.exp(mean), math.exp(mean - width), math.exp(mean + width))


def compare_rates(
    endpoints: tuple[Endpoint, Endpoint],
    bodies: Bodies,
    clients: int,
    windows: int,
    seconds: float,
    generators: Generators,
    random: np.random.Generator,
    warm_up: float = 0.0,
) -> Rates:
    """Measures a closed loop of several clients in paired windows, one on each server in random order."""
    rates: tuple[list[float], list[float]] = ([], [])
    errors: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    for _ in range(windows):
        for side in (0, 1) if random.random() < 0.5 else (1, 0):
            sample = generators.closed(endpoints[side], bodies[side], clients, warm_up, seconds)
            rates[side].append(sample.completed / sample.seconds)
            errors[side].update(sample.errors)
    return Rates(np.array(rates[0]), np.array(rates[1]), (dict(errors[0]), dict(errors[1])))
