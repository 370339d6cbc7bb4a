"""The folder of a run: creates it, locks it during a run, and checks its database."""

import contextlib
import fcntl
import os
import pathlib
import sqlite3
import time
from collections.abc import Iterator

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.progress import announce

METADATA = pathlib.Path("tfx", "metadata.sqlite")  # TFX's database, relative to the folder
ARTIFACTS = pathlib.Path("tfx", "artifacts")  # the folders of TFX's artifacts, relative to the folder
LOCK = ".lock"  # file that is locked during a run
DATABASE_WAIT = 60.0  # seconds
_DATABASE_POLL = 0.5


def check_output(output: pathlib.Path) -> None:
    """Makes the folder if it is missing. Raises InputError if it cannot be made."""
    try:
        output.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{output}: a file is in the way of the output folder; choose another --output") from error
    except OSError as error:
        raise InputError(f"{output}: cannot make the output folder ({error.strerror})") from error


def path_in(output: pathlib.Path, recorded: pathlib.Path) -> pathlib.Path:
    """Returns the current path of a recorded artifact of an output folder.

    TFX records absolute paths. They are wrong after the folder is moved or copied, and another run may use the old path
    since. An artifact is therefore always looked up in the folder itself. A path outside any output folder, such as in
    a cluster's object store, is unchanged.

    Args:
        output: The current output folder.
        recorded: The path that was recorded when the artifact was made.
    """
    place = place_of(recorded)
    return output / recorded.relative_to(place) if place else recorded


def place_of(artifact: pathlib.Path) -> pathlib.Path | None:
    """Returns the output folder in which a recorded artifact was created; None if there is none."""
    parts = artifact.parts
    starts = [index for index in range(len(parts)) if parts[index : index + 2] == ARTIFACTS.parts]
    return pathlib.Path(*parts[: starts[-1]]) if starts else None


@contextlib.contextmanager
def one_run_at_a_time(output: pathlib.Path) -> Iterator[None]:
    """Locks the folder while the block runs. The kernel releases the lock if the process is killed.

    Raises:
        InputError: another process holds the lock, or the folder was removed during the block.
    """
    path = output / LOCK
    with open(path, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"{output}: another run works in this folder; wait, or choose another --output") from error
        try:
            yield
        except Exception as error:
            if not _is_at(path, lock.fileno()):
                raise _removed(output) from error
            raise
        finally:
            fcntl.flock(lock, fcntl.LOCK_UN)  # a fork may keep the file open
        if not _is_at(path, lock.fileno()):
            raise _removed(output)


def is_locked(path: pathlib.Path) -> bool:
    """Returns whether a process holds the lock of a file; False without the file."""
    try:
        with open(path) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def _is_at(path: pathlib.Path, file: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except OSError:
        return False


def _removed(output: pathlib.Path) -> InputError:
    return InputError(f"{output}: the output folder was removed, or replaced, during the run; run again")


def await_database(database: pathlib.Path) -> None:
    """Waits until no other process locks TFX's database, announces the wait, and checks the database's integrity.

    Raises:
        InputError: the database stays locked, or is damaged.
    """
    if not database.exists():
        return
    deadline = time.monotonic() + DATABASE_WAIT
    said = False
    while True:
        try:
            with contextlib.closing(sqlite3.connect(database, timeout=0, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("ROLLBACK")
                state = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise InputError(f"{database}: cannot be opened ({one_line(error)}); check the disk") from error
            if time.monotonic() > deadline:
                raise InputError(
                    f"{database}: another process has locked this database for {DATABASE_WAIT:g} s; end that process"
                ) from error
            if not said:
                announce(f"Waiting for another process to release its lock on {database}")
                said = True
            time.sleep(_DATABASE_POLL)
            continue
        except sqlite3.DatabaseError as error:
            state = one_line(error)
        if state != "ok":
            raise InputError(
                f"{database}: damaged ({one_line(state, 200)}); remove {database.parent}, which holds the cache and no "
                "pushed model, and run again"
            )
        return
