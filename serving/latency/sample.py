"""Measurements of requests, and their percentiles."""

import collections
import dataclasses
import math
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9)


def name_of(percentile: float) -> str:
    return f"p{percentile:g}_ms"


@dataclasses.dataclass(frozen=True)
class LatencySample:
    """The requests of one window.

    Attributes:
        latencies: Seconds from the intended start of each request to its response, or until it was given up: a server
            that hangs must not look fast. Requests with an error response are only in `errors`.
        completed: The number of good responses that arrived within the window, whenever their requests started.
        seconds: The length of the window.
        errors: The number of failed requests by reason.
        lags: The delay of each request behind its intended start, in seconds; open loop only.
        cpu_seconds: The CPU time of the generator.
    """

    latencies: np.ndarray
    completed: int
    seconds: float
    errors: dict[str, int]
    lags: np.ndarray
    cpu_seconds: float


class Recorder:
    """Records requests with an intended start from `opens` to `closes`. Thread-safe."""

    def __init__(self, opens: float, closes: float):
        self.opens, self.closes = opens, closes
        self._latencies: list[float] = []
        self._lags: list[float] = []
        self._errors: collections.Counter[str] = collections.Counter()
        self._completed = 0
        self._lock = threading.Lock()

    def answered(self, intended: float, now: float) -> None:
        with self._lock:
            self._completed += self.opens <= now < self.closes
            if self.opens <= intended < self.closes:
                self._latencies.append(now - intended)

    def failed(self, intended: float, reason: str) -> None:
        with self._lock:
            self._errors[reason] += self.opens <= intended < self.closes

    def given_up(self, intended: float, now: float) -> None:
        with self._lock:
            if self.opens <= intended < self.closes:
                self._errors["timeout"] += 1
                self._latencies.append(now - intended)

    def sent_late(self, intended: float, lag: float) -> None:
        with self._lock:
            if self.opens <= intended < self.closes:
                self._lags.append(lag)

    def sample(self, cpu_seconds: float) -> LatencySample:
        errors = {reason: count for reason, count in self._errors.items() if count}
        latencies, lags = np.array(self._latencies), np.array(self._lags)
        return LatencySample(latencies, self._completed, self.closes - self.opens, errors, lags, cpu_seconds)


def together(samples: Sequence[LatencySample]) -> LatencySample:
    """Merges the samples of generators that ran concurrently into one sample."""
    errors: collections.Counter[str] = collections.Counter()
    for sample in samples:
        errors.update(sample.errors)
    return LatencySample(
        np.concatenate([sample.latencies for sample in samples]),
        sum(sample.completed for sample in samples),
        samples[0].seconds,
        dict(errors),
        np.concatenate([sample.lags for sample in samples]),
        sum(sample.cpu_seconds for sample in samples),
    )


def percentiles(seconds: np.ndarray) -> dict[str, float | None]:
    """Returns each of PERCENTILES in ms, by nearest rank; None if no request lies above it."""
    ordered, count = np.sort(seconds), len(seconds)
    by_name: dict[str, float | None] = {}
    for percentile in PERCENTILES:
        rank = math.ceil(count * percentile / 100 - 1e-9)  # 99.9% of 1000 is not quite 999 in floating point
        by_name[name_of(percentile)] = 1000 * float(ordered[rank - 1]) if rank < count else None
    return by_name


def summarise(rounds: Sequence[LatencySample], rows: int) -> dict[str, Any]:
    """Returns a cell's percentiles, rates and errors over all rounds, and p50 and rows/s by round."""
    latencies = np.concatenate([sample.latencies for sample in rounds])
    lags = np.concatenate([sample.lags for sample in rounds])
    seconds = sum(sample.seconds for sample in rounds)
    completed = sum(sample.completed for sample in rounds)
    errors: collections.Counter[str] = collections.Counter()
    for sample in rounds:
        errors.update(sample.errors)
    return {
        "requests": len(latencies) + errors.total() - errors["timeout"],
        "errors": {reason: count for reason, count in errors.items() if count},
        **percentiles(latencies),
        "mean_ms": 1000 * float(latencies.mean()) if len(latencies) else None,
        "max_ms": 1000 * float(latencies.max()) if len(latencies) else None,
        "requests_per_s": completed / seconds,
        "rows_per_s": completed * rows / seconds,
        "generator_cpu": sum(sample.cpu_seconds for sample in rounds) / seconds,
        "generator_lag_p99_ms": 1000 * float(np.percentile(lags, 99)) if len(lags) else None,
        "rounds": [
            {
                "p50_ms": 1000 * float(np.median(sample.latencies)) if len(sample.latencies) else None,
                "rows_per_s": sample.completed * rows / sample.seconds,
            }
            for sample in rounds
        ],
    }
