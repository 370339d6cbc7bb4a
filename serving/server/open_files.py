"""The limit of open files, and thus of connections, of the process."""

import contextlib
import resource
import sys

from ctrpipe.common.errors import InputError

# A server of one model has some 20 files of its own. With fewer files than these, the connections that are accepted
# before older ones are closed would find none, and be reset.
FEWEST_FILES = 128


def raise_file_limit() -> None:
    """Raises the process's limit of open files and connections to the maximum.

    Raises:
        InputError: the maximum is below FEWEST_FILES.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS has a lower limit than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if most_files() < FEWEST_FILES:
        raise InputError(
            f"this process may have {most_files()} files open, and a server needs {FEWEST_FILES}, for its connections "
            f"too; raise the limit, as with ulimit -Hn {FEWEST_FILES}"
        )


def most_files() -> int:
    """Returns the process's limit of open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if files == resource.RLIM_INFINITY else files
