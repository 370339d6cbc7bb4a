"""A user's mistakes in one line: what the command line prints of any failure, raised as InputError."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeVar

from ctrpipe.common.errors import InputError
from ctrpipe.common.extras import BASE, COMMANDS, require

P = ParamSpec("P")
T = TypeVar("T")


def in_one_line(function: Callable[P, T]) -> Callable[P, T]:
    """Returns a function whose failures that a user can remedy are InputErrors, as a full disk is for the commands.

    A function whose command needs an extra that is not installed says which. A library wraps an InputError that its
    workers raise; here it is one again. A key that does not exist is called as Python writes it, with two underscores.
    """

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            require(COMMANDS.get(function.__name__, BASE), f"ctrpipe.{function.__name__}")
            return function(*arguments, **options)
        except InputError as error:
            raise _as_in_python(error, options) from error.__cause__
        except Exception as error:
            from ctrpipe.common.failures import explain_mistake  # now that something has failed

            if text := explain_mistake(error):
                raise InputError(text) from error
            raise

    return called


def _as_in_python(error: InputError, options: Mapping[str, Any]) -> InputError:
    """Returns the error with keys as the call wrote them, where the wrong one is the call's."""
    wrong, nearest = getattr(error, "key", None), getattr(error, "nearest", None)
    for name in options:
        if wrong and f"{dotted(name)}.".startswith(f"{wrong}."):
            meant = f"{nearest}{dotted(name)[len(wrong) :]}".replace(".", "__")
            hint = f"did you mean {meant}?" if nearest else "docs/configuration.md has every key"
            return InputError(f"{name}: no such key; {hint}")
        if str(error).startswith(setting := f"--set {dotted(name)}="):
            return InputError(f"{name}={str(error).removeprefix(setting)}")
    return error


def dotted(name: str) -> str:
    """Returns a key as a configuration's file writes it: `training.epochs` for `training__epochs`."""
    return name.replace("__", ".")
