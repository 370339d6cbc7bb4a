"""How many files, and with them connections, the process may have open."""

import contextlib
import resource
import sys


def raise_file_limit() -> None:
    """Raises the process's limit of open files and connections to the maximum."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def most_files() -> int:
    """Returns how many files the process may have open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else files
