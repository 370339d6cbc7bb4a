"""The memory limit of this process, and its current memory."""

import os
import pathlib

_CGROUPS = pathlib.Path("/sys/fs/cgroup")
_OWN_CGROUPS = pathlib.Path("/proc/self/cgroup")
_STATM = pathlib.Path("/proc/self/statm")  # Linux only
_LIMITS = ("memory.max", "memory.limit_in_bytes")  # of version 2 and of version 1


def memory_limit(cgroups: pathlib.Path = _CGROUPS, own: pathlib.Path = _OWN_CGROUPS) -> int:
    """Returns the memory limit of this process in bytes: the machine's memory, or a container's limit if it is lower.

    A container's limit is the smallest limit of its control group and of all parent groups, in cgroup v1 and v2.

    Args:
        cgroups: Where the control groups are mounted.
        own: The file that names the control groups of this process.
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for folder in _groups(cgroups, own):
        for name in _LIMITS:
            try:
                text = (folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdecimal() and int(text) > 0:  # without a limit, version 2 says max
                limits.append(int(text))
    return min(limits)


def _groups(cgroups: pathlib.Path, own: pathlib.Path) -> list[pathlib.Path]:
    """Returns the folders of this process's control groups and of those above them.

    In a container the mount often begins with the process's own group, so the paths that the kernel names are absent.
    """
    mounts = [cgroups, cgroups / "memory", cgroups / "unified"]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return mounts
    folders = list(mounts)
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory") or "memory" in controllers.split(","):
            group = pathlib.PurePosixPath(path.lstrip("/"))
            folders += [mount / part for mount in mounts for part in (group, *group.parents)]
    return folders


def resident_bytes() -> int:
    """Returns the resident memory of this process in bytes; 0 if the system does not report it. Takes 10 us."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
