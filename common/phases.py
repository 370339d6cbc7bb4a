"""Measure the time of each phase of a run. A phase ends when the next one starts.

The phases are global to the process, like progress lines: TFX calls the steps of a run and passes no state to them.
"""

import time
from collections.abc import Mapping

LEAST_SHARE = 0.02  # phases with a smaller share of the time are listed as "other"

_starts: list[tuple[str, float]] = []


def begin_phases(name: str) -> None:
    """Starts the first phase of a run, and clears the phases of an earlier run in this process."""
    _starts[:] = [(name, time.monotonic())]


def start_phase(name: str) -> None:
    """Starts a phase. The times of phases with the same name are added."""
    _starts.append((name, time.monotonic()))


def seconds_by_phase() -> dict[str, float]:
    """Returns the seconds of each phase so far, in order of their first start; {} before a run."""
    if not _starts:
        return {}
    seconds: dict[str, float] = {}
    ends = [*(at for _, at in _starts[1:]), time.monotonic()]
    for (name, at), end in zip(_starts, ends, strict=True):
        seconds[name] = seconds.get(name, 0.0) + end - at
    return seconds


def listed_phases(seconds: Mapping[str, float]) -> str:
    """Returns one line with the total time and the time of each phase. Short phases are summed as "other"."""
    total = sum(seconds.values())
    named = {name: took for name, took in seconds.items() if took >= LEAST_SHARE * total}
    other = total - sum(named.values())
    shown = [f"{name} {took:.1f}" for name, took in named.items()] + ([f"other {other:.1f}"] if other >= 0.05 else [])
    return f"{total:.1f} s: {', '.join(shown)}"
