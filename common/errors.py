"""The exception for a user's mistake, and functions that turn errors into text."""

import re
from collections.abc import Iterator

from ctrpipe.common.printable import printable

# The user and the password in a URL, and the values of options and URL parameters whose names suggest a secret.
_USER = re.compile(r"(?<=://)[^/\s@]+(?=@)")
_SECRET = re.compile(
    r"((?:--|[?&])[\w-]*(?:token|secret|passw|credential|signature|access_key|api_?key)[\w-]*=)[^\s&'\",]+", re.I
)
_HIDDEN = "***"


class InputError(Exception):
    """A user's mistake: the command line prints its message as one line and exits with code 2.

    The message says what is wrong, where, and what to do about it.
    """

    def _render_traceback_(self) -> list[str]:
        """Returns the lines that IPython and Jupyter show in place of a traceback: one, without secrets."""
        return [f"InputError: {printable(without_secrets(str(self)))}"]


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and the errors that led to it, nearest first, each once: a chain of causes may be circular."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def without_secrets(text: str) -> str:
    """Returns the text with *** in place of whatever looks like a password or a token."""
    return _SECRET.sub(rf"\1{_HIDDEN}", _USER.sub(_HIDDEN, text))


def one_line(text: object, length: int | None = None) -> str:
    """Returns a text or an error's message on one line, of at most `length` characters."""
    return " ".join(str(text).split())[:length]
