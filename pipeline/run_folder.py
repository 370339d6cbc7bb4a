"""The folder of a run: made where it can be, and locked while a run works in it."""

import contextlib
import fcntl
import pathlib
from collections.abc import Iterator

from common.errors import InputError

METADATA = pathlib.Path("tfx", "metadata.sqlite")  # TFX's database, below the folder


def check_output(output: pathlib.Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{output}: a file is in the way of the output folder; choose another --output") from error
    except OSError as error:
        raise InputError(f"{output}: cannot make the output folder ({error.strerror})") from error


@contextlib.contextmanager
def one_run_at_a_time(output: pathlib.Path) -> Iterator[None]:
    """Holds a lock that the kernel releases when the process ends, also when it is killed."""
    with open(output / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"{output}: another run works in this folder; wait, or choose another --output") from error
        yield
