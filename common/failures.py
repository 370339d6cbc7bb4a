"""Explain unhandled failures: one line with advice, and an exit code.

Failures of the machine (a full disk, no memory) can occur anywhere, as exceptions of Python, Arrow, HDF5, TensorFlow
or SQLite. They have no common class, so they are recognized by error number and message.
"""

import concurrent.futures.process
import errno
import re
import tempfile
import traceback

from ctrpipe.common import foreign
from ctrpipe.common.errors import InputError, causes, one_line, without_secrets
from ctrpipe.common.exit_codes import FAILED, MISTAKE
from ctrpipe.common.extras import extra_of, install
from ctrpipe.common.packages import PACKAGE

KILLED = "a process of this command was killed, probably because memory ran out"
_MORE_MEMORY = "close other programs, or give it more memory, or less to do at a time"
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|database or disk is full|\d+ requested and \d+ written", re.IGNORECASE
)
_TOO_LARGE = re.compile(r"File too large|errno 27\b", re.IGNORECASE)
_NO_MEMORY = re.compile(
    r"Cannot allocate memory|OOM when allocating|bad_alloc|malloc of size|failed to allocate|failed to map segment"
)
_NO_THREAD = re.compile(r"can't start new thread|pthread_create failed")
_LOCKED = re.compile(r"database is locked|database table is locked")
_DAMAGED = re.compile(
    r"disk image is malformed|file is not a database|malformed database schema|subset of tables in MLMD instance"
)
# SQLite rolls a transaction back when it cannot write.
_IO = re.compile(r"disk I/O error|unable to open database file|cannot commit - no transaction is active")
_READ_ONLY = re.compile(r"Read-only file system|readonly database", re.IGNORECASE)


def explain(error: BaseException) -> tuple[str, int]:
    """Returns a message for a failure, and the exit code: MISTAKE if the user can fix it, FAILED otherwise."""
    mistake = explain_mistake(error)
    if mistake:
        return mistake, MISTAKE
    message = f"{type(error).__name__}: {one_line(error, 300)}"
    return f"{message}; this is a defect of ctrpipe, please report it with {_save_traceback(error)}", FAILED


def explain_mistake(error: BaseException) -> str:
    """Returns a message for a failure that the user can fix; "" for any other."""
    messages = (str(cause) if isinstance(cause, InputError) else _explain_one(cause) for cause in causes(error))
    return next(filter(None, messages), "") or next(filter(None, map(foreign.failure, causes(error))), "")


def _explain_one(error: BaseException) -> str:
    number, text = getattr(error, "errno", None), str(error)
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename is not None else ""

    def matches(pattern: re.Pattern[str], *numbers: int) -> bool:
        return number in numbers or bool(pattern.search(text))

    if matches(_FULL, errno.ENOSPC, errno.EDQUOT):
        return f"{where}the disk is full; make room, or choose an output folder on another disk, and run again"
    if matches(_TOO_LARGE, errno.EFBIG):
        return f"{where}a file would be larger than the system allows; see ulimit -f, and run again"
    if isinstance(error, MemoryError) or matches(_NO_MEMORY, errno.ENOMEM):
        return f"{where}memory has run out; {_MORE_MEMORY}"
    if matches(_NO_THREAD):
        return f"the system cannot start another thread; see ulimit -u and ulimit -v, or {_MORE_MEMORY}"
    if isinstance(error, concurrent.futures.process.BrokenProcessPool):
        return f"{KILLED}; {_MORE_MEMORY}"
    if matches(_LOCKED):
        return "ML Metadata's database is locked by another process; end that one, and run again"
    if matches(_DAMAGED):
        return (
            "ML Metadata's database, tfx/metadata.sqlite in the output folder, is damaged; remove tfx/, and run again"
        )
    if matches(_IO):
        return "ML Metadata's database, tfx/metadata.sqlite in the output folder, cannot be written; is the disk full?"
    if matches(_READ_ONLY, errno.EROFS):
        return f"{where}the file system is read-only; choose another output folder"
    if isinstance(error, ModuleNotFoundError) and error.name and error.name.partition(".")[0] != PACKAGE:
        module = error.name.partition(".")[0]
        advice = install(extra_of(module)) if extra_of(module) else "install ctrpipe again, with all that it needs"
        return f"the package {module} is not installed here; {advice}"
    if isinstance(error, PermissionError):
        return f"{where}permission denied; choose another folder, or change its permissions"
    return ""


def _save_traceback(error: BaseException) -> str:
    """Writes the traceback to a file, to attach to a bug report, and returns the path."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="ctrpipe-", suffix=".txt", delete=False) as file:
            file.write(without_secrets(text))
    except OSError:
        return "what stands above"
    return file.name
