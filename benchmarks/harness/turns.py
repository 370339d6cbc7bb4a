"""Runs several sides in alternating rounds, and compares them within each round."""

import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ctrpipe.serving.latency.papers import WARM_UP

T = TypeVar("T")


def alternate(
    sides: Mapping[str, Callable[[], T]], rounds: int, tell: Callable[[int, dict[str, T]], None] | None = None
) -> dict[str, list[T]]:
    """Returns the results of each side, one for each round. In a round every side has one turn.

    Args:
        sides: The sides by name, in the order of their turns.
        rounds: Number of rounds.
        tell: Called after each round with its number, from 1, and its results.
    """
    results: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(1, rounds + 1):
        for name, side in sides.items():
            results[name].append(side())
        if tell:
            tell(number, {name: of_side[-1] for name, of_side in results.items()})
    return results


def spread(values: Sequence[float]) -> dict[str, float]:
    """Returns median, minimum and maximum."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def ratios(first: Sequence[float], second: Sequence[float]) -> dict[str, float]:
    """Returns the spread of the first side's values over the second's in the same round."""
    return spread([a / b for a, b in zip(first, second, strict=True)])


def in_turn(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, dict[str, list[float]]]:
    """Returns the seconds and CPU seconds of each alternating call by name; the first WARM_UP of each do not count."""
    results = alternate({name: lambda call=call: timed(call) for name, call in calls.items()}, WARM_UP + repeats)
    return {
        name: {"seconds": [wall for wall, _ in of_call], "cpu_seconds": [cpu for _, cpu in of_call]}
        for name, of_call in ((name, of_side[WARM_UP:]) for name, of_side in results.items())
    }


def timed(call: Callable[[], Any]) -> tuple[float, float]:
    """Returns the wall time of a call and the CPU time of all threads of this process, in seconds."""
    started, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - started, time.process_time() - cpu


def core_seconds() -> float:
    """Returns the CPU time, in seconds, of this process and its ended children."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def milliseconds(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {
        "ms": 1000 * statistics.median(times["seconds"]),
        "cpu_ms": 1000 * statistics.median(times["cpu_seconds"]),
    }


def ratio(
    first: Mapping[str, Sequence[float]], second: Mapping[str, Sequence[float]], key: str = "cpu_seconds"
) -> float:
    """Returns the median ratio of the first's value to the second's in the same repeat."""
    return ratios(first[key], second[key])["median"]
