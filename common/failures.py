"""What a failure is that no function has foreseen where it happened: one line that says what to do, and an exit code.

The machine's failures (a full disk, no memory) may come from anywhere, as exceptions of Python, Arrow, HDF5, TensorFlow
and SQLite. Only their texts have something in common.
"""

import concurrent.futures.process
import errno
import re
import tempfile
import traceback

from common.errors import InputError, causes, one_line, without_secrets
from common.exit_codes import FAILED, MISTAKE

KILLED = "a process of this command was killed, as the system does where memory runs out"
_MORE_MEMORY = "close other programs, or give it more memory, or less to do at a time"
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|database or disk is full|\d+ requested and \d+ written", re.IGNORECASE
)
_TOO_LARGE = re.compile(r"File too large|errno 27\b", re.IGNORECASE)
_NO_MEMORY = re.compile(r"Cannot allocate memory|OOM when allocating|bad_alloc|malloc of size|failed to allocate")
_LOCKED = re.compile(r"database is locked|database table is locked")
_DAMAGED = re.compile(r"disk image is malformed|file is not a database|malformed database schema")
# SQLite takes a transaction back where it cannot write.
_IO = re.compile(r"disk I/O error|unable to open database file|cannot commit - no transaction is active")
_READ_ONLY = re.compile(r"Read-only file system|readonly database", re.IGNORECASE)


def explain(error: BaseException) -> tuple[str, int]:
    """Returns what to say of a failure, and the exit code: MISTAKE where the user can do something, else FAILED."""
    for cause in causes(error):
        if isinstance(cause, InputError):
            return str(cause), MISTAKE
        said = _explain_one(cause)
        if said:
            return said, MISTAKE
    kind = type(error).__name__
    return f"{kind}: {one_line(error, 300)}; this is a defect of ctrpipe, please report it with {_kept(error)}", FAILED


def _explain_one(error: BaseException) -> str:
    number, text = getattr(error, "errno", None), str(error)
    where = f"{error.filename}: " if isinstance(error, OSError) and error.filename is not None else ""

    def is_one(pattern: re.Pattern[str], *numbers: int) -> bool:
        return number in numbers or bool(pattern.search(text))

    if is_one(_FULL, errno.ENOSPC, errno.EDQUOT):
        return f"{where}the disk is full; make room, or choose an output folder on another disk, and run again"
    if is_one(_TOO_LARGE, errno.EFBIG):
        return f"{where}a file would be larger than the system allows; see ulimit -f, and run again"
    if isinstance(error, MemoryError) or is_one(_NO_MEMORY, errno.ENOMEM):
        return f"{where}memory has run out; {_MORE_MEMORY}"
    if isinstance(error, concurrent.futures.process.BrokenProcessPool):
        return f"{KILLED}; {_MORE_MEMORY}"
    if is_one(_LOCKED):
        return "ML Metadata's database is locked by another process; end that one, and run again"
    if is_one(_DAMAGED):
        return (
            "ML Metadata's database, tfx/metadata.sqlite in the output folder, is damaged; remove tfx/, and run again"
        )
    if is_one(_IO):
        return "ML Metadata's database, tfx/metadata.sqlite in the output folder, cannot be written; has the disk room?"
    if is_one(_READ_ONLY, errno.EROFS):
        return f"{where}the file system is read-only; choose another output folder"
    if isinstance(error, PermissionError):
        return f"{where}permission denied; choose another folder, or change its permissions"
    return ""


def _kept(error: BaseException) -> str:
    """Writes the traceback to a file for a report, and returns the file's path."""
    text = "".join(traceback.format_exception(error))
    try:
        with tempfile.NamedTemporaryFile("w", prefix="ctrpipe-", suffix=".txt", delete=False) as file:
            file.write(without_secrets(text))
    except OSError:
        return "what stands above"
    return file.name
