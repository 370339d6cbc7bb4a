"""The exception for user errors, and functions that turn errors into text."""

import re
from collections.abc import Iterator

from ctrpipe.common.printable import printable

# User and password in a URL; values of options and URL parameters whose names suggest a secret.
_USER = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_SECRET = re.compile(
    r"((?:--|[?&])[\w-]*(?:token|secret|passw|credential|signature|access_key|api_?key)[\w-]*=)[^\s&'\",]+", re.I
)
_HIDDEN = "***"


class InputError(Exception):
    """An error that the user can fix. The command line prints the message as one line and exits with code 2.

    The message states what is wrong, where, and how to fix it.
    """

    def _render_traceback_(self) -> list[str]:
        """Returns one line, without secrets, which IPython and Jupyter show in place of a traceback."""
        return [f"InputError: {printable(without_secrets(str(self)))}"]


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and its causes, nearest first. Yields each once, because the chain may be circular."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def without_secrets(text: str) -> str:
    """Replaces everything that looks like a password or a token by ***."""
    return _SECRET.sub(rf"\1{_HIDDEN}", _USER.sub(_HIDDEN, text))


def one_line(text: object, length: int | None = None) -> str:
    """Returns a text or the message of an error as one line with at most `length` characters."""
    return " ".join(str(text).split())[:length]
