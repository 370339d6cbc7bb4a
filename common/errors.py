"""The exception for a user's mistake, and errors as text."""

from collections.abc import Iterator


class InputError(Exception):
    """A user's mistake: the command line prints its message as one line and exits with code 2.

    The message says what is wrong, where, and what to do about it.
    """


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and what led to it, nearest first; each once, for such a chain may be a ring."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def one_line(text: object, length: int | None = None) -> str:
    """Returns a text, or an error's message, on one line, cut off after `length` characters."""
    return " ".join(str(text).split())[:length]
