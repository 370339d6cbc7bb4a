"""Reads the peak resident memory of this process. Standard library only."""

import pathlib
import resource

STATUS = pathlib.Path("/proc/self/status")


def peak_bytes() -> int:
    """Returns the peak resident set size of this process, in bytes.

    It is Linux's VmHWM where there is one: getrusage's ru_maxrss survives exec, so that a small process that a large
    one started would report its parent's size.
    """
    if STATUS.exists():
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
