"""Times several calls in turn, and compares their times."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from ctrpipe.serving.latency.papers import WARM_UP


def in_turn(calls: dict[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Returns the seconds and CPU seconds of each alternating call by name; the first WARM_UP of each do not count."""
    times_of: dict[str, dict[str, list[float]]] = {name: {"seconds": [], "cpu_seconds": []} for name in calls}
    for repeat in range(-WARM_UP, repeats):
        for name, call in calls.items():
            started, cpu = time.perf_counter(), time.process_time()
            call()
            if repeat >= 0:
                times_of[name]["seconds"].append(time.perf_counter() - started)
                times_of[name]["cpu_seconds"].append(time.process_time() - cpu)
    return times_of


def milliseconds(times: dict[str, list[float]]) -> dict[str, float]:
    return {
        "ms": 1000 * statistics.median(times["seconds"]),
        "cpu_ms": 1000 * statistics.median(times["cpu_seconds"]),
    }


def ratio(first: dict[str, list[float]], second: dict[str, list[float]], key: str = "cpu_seconds") -> float:
    """Returns the median over the repeats of the first's value over the second's in the same repeat."""
    return statistics.median(a / b for a, b in zip(first[key], second[key], strict=True))
