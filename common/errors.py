"""The exception for user errors, and functions that turn errors into text."""

import re
from collections.abc import Iterator
from typing import Any, Self

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
        """Returns one line, without secrets, which IPython and Jupyter show instead of a traceback."""
        return [f"InputError: {printable(without_secrets(str(self)))}"]


class Interrupted(KeyboardInterrupt):
    """Ctrl-C, or a notebook's stop button, during a function of ctrpipe that was called from Python.

    The message is one line, and tells whether the same call resumes.
    """

    def _render_traceback_(self) -> list[str]:
        """Returns one line, which IPython and Jupyter show instead of a traceback."""
        return [f"Interrupted: {self}"]


class NotFiniteError(InputError):
    """A figure of a run is NaN or infinite: a loss, a weight, a prediction, a metric.

    The message is one line. If a number of the log is the likely cause, the line names its column and place.

    Args:
        what: The figure, such as "dcn_v2: the training loss is not a finite number in epoch 1".
        advice: What to do, without a final period.
        split: The split of the rows that the figure is of: train, validation or test; "" for none.
        row: The index in this split of a row with such a figure, in the order of the log; None if there is none.
        column: The column of the number that is the likely cause; "" if none is known.
        number: The number.
        place: The file and line of the number, as `log.csv:17`; "" if it is not known.
    """

    def __init__(
        self,
        what: str,
        advice: str,
        split: str = "",
        row: int | None = None,
        column: str = "",
        number: float = 0.0,
        place: str = "",
    ):
        super().__init__(what, advice, split, row, column, number, place)  # the arguments, so that it can be pickled
        self.what, self.advice, self.split, self.row = what, advice, split, row
        self.column, self.number, self.place = column, number, place

    def with_(self, **changes: Any) -> Self:
        """Returns a copy with other values of some attributes."""
        names = ("what", "advice", "split", "row", "column", "number", "place")
        return type(self)(**{name: changes.get(name, getattr(self, name)) for name in names})

    def __str__(self) -> str:
        rows = f"{'training' if self.split == 'train' else self.split} rows"
        where = f" in row {self.row + 1:,} of the {rows}" if self.row is not None else f" in the {rows}"
        if not self.column:
            return f"{self.what}{f', first{where}' if self.row is not None else ''}; {self.advice}"
        where = f" in {self.place}" if self.place else where
        advice = f", or {self.advice}" if self.row is None else ""
        number = f"{self.column} is {self.number:.6g}{where}"
        return f"{self.what}: {number}; correct that number or leave its row out{advice}"


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yields the error and its causes, nearest first. Yields each once, because the chain may be circular."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def is_interrupt(error: BaseException) -> bool:
    """Returns whether the error is a KeyboardInterrupt, or was caused by one (Beam wraps it in a RuntimeError)."""
    return any(isinstance(cause, KeyboardInterrupt) for cause in causes(error))


def without_secrets(text: str) -> str:
    """Replaces everything that looks like a password or a token by ***."""
    return _SECRET.sub(rf"\1{_HIDDEN}", _USER.sub(_HIDDEN, text))


def one_line(text: object, length: int | None = None) -> str:
    """Returns a text or the message of an error as one line with at most `length` characters."""
    return " ".join(str(text).split())[:length]
