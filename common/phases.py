"""Where a run's time goes: it is in one phase at a time, and a phase ends where the next one starts.

As progress lines, phases belong to the process: TFX calls the steps of a run, and hands nothing through to them.
"""

import time
from collections.abc import Mapping

LEAST_SHARE = 0.02  # of the time, which a phase has to have taken to be named

_starts: list[tuple[str, float]] = []


def begin_phases(name: str) -> None:
    """Starts a run's first phase, and forgets those of an earlier run of this process."""
    _starts[:] = [(name, time.monotonic())]


def start_phase(name: str) -> None:
    """Starts a phase, which may have been there before: then both times count."""
    _starts.append((name, time.monotonic()))


def seconds_by_phase() -> dict[str, float]:
    """Returns how many seconds each phase has taken until now, in the order in which they started; {} before a run."""
    if not _starts:
        return {}
    found: dict[str, float] = {}
    ends = [*(at for _, at in _starts[1:]), time.monotonic()]
    for (name, at), end in zip(_starts, ends, strict=True):
        found[name] = found.get(name, 0.0) + end - at
    return found


def listed_phases(seconds: Mapping[str, float]) -> str:
    """Returns one line: all the time, then that of each phase; short phases are summed up as "other"."""
    total = sum(seconds.values())
    named = {name: took for name, took in seconds.items() if took >= LEAST_SHARE * total}
    other = total - sum(named.values())
    shown = [f"{name} {took:.1f}" for name, took in named.items()] + ([f"other {other:.1f}"] if other >= 0.05 else [])
    return f"{total:.1f} s: {', '.join(shown)}"
