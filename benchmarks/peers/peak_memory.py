"""Reads the peak resident memory of this process. Uses the standard library only."""

import pathlib
import resource

STATUS = pathlib.Path("/proc/self/status")


def peak_bytes() -> int:
    """Returns the peak resident set size of this process, in bytes.

    Uses Linux's VmHWM if available: getrusage's ru_maxrss survives exec, and a small process would report the size of a
    large parent.
    """
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
