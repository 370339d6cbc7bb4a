"""Turn failures that a user can fix into InputErrors with the messages of the command line, and Ctrl-C into a line."""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar

from ctrpipe.common.errors import InputError, Interrupted, is_interrupt
from ctrpipe.common.extras import BASE, COMMANDS, RESUMED, require
from ctrpipe.common.failures import explain_mistake
from ctrpipe.common.interrupt import interrupts_delivered_once
from ctrpipe.common.near import nearest_name
from ctrpipe.common.store_names import COPIES, with_urls
from ctrpipe.data import as_given

_MISTYPED = 0.8  # similarity of a keyword and a parameter, from which it is meant rather than a key
P = ParamSpec("P")
T = TypeVar("T")


def in_one_line(function: Callable[P, T]) -> Callable[P, T]:
    """Decorates a function to raise InputError for failures that a user can fix, such as a full disk.

    - Raises InputError if the extra that the function needs is not installed.
    - Raises Interrupted, which a notebook shows as one line, for Ctrl-C and for a notebook's stop button.
    - Unwraps an InputError from a library's exception.
    - Names unknown configuration keys with two underscores, as in the Python call, a DataFrame without its file, and a
      URL without its copy.
    """

    @functools.wraps(function)
    def called(*arguments: P.args, **options: P.kwargs) -> T:
        name = function.__name__
        try:
            _check_names(function, options)
            with interrupts_delivered_once():
                require(COMMANDS.get(name, BASE), f"ctrpipe.{name}")
                return function(*arguments, **options)
        except Interrupted:
            raise
        except InputError as error:
            raise _as_in_python(error, options, _keywords(function)) from error.__cause__
        except (KeyboardInterrupt, Exception) as error:
            if is_interrupt(error):
                again = "; repeat the call to continue from here" if name in RESUMED else ""
                raise Interrupted(f"ctrpipe.{name} was stopped{again}") from None
            if text := explain_mistake(error):
                raise InputError(text) from error
            raise

    return called


def _keywords(function: Callable[..., object]) -> list[str]:
    """Returns the names of the parameters that a caller can give by name."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters
    return [name for name, one in parameters.items() if one.kind in kinds and name != "self"]


def _check_names(function: Callable[..., object], options: Mapping[str, object]) -> None:
    """Raises InputError for a keyword that a function does not have. A function of settings takes all."""
    parameters = inspect.signature(function).parameters
    if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values()):
        return
    known = _keywords(function)
    for name in options:
        if name not in known:
            near = nearest_name(name, known)
            hint = f"it has {', '.join(known)}" if known else "call it without keywords"
            hint = f"did you mean {near}?" if near else hint
            raise InputError(f"{function.__name__} has no argument {name}; {hint}")


def _as_in_python(error: InputError, options: Mapping[str, object], known: Iterable[str]) -> InputError:
    """Returns the error with the key and the data as named in the Python call.

    Args:
        error: The error.
        options: The keywords of the call.
        known: The names of the function's parameters, one of which a keyword that is no key may mean.
    """
    wrong, nearest = getattr(error, "key", None), getattr(error, "nearest", None)
    for name in options:
        if wrong and f"{dotted(name)}.".startswith(f"{wrong}."):
            meant = f"{nearest}{dotted(name)[len(wrong) :]}".replace(".", "__")
            near = nearest_name(name, known, _MISTYPED) or (meant if nearest else None)
            hint = f"did you mean {near}?" if near else "docs/configuration.md has every key"
            return InputError(f"{name}: no such key; {hint}")
        if str(error).startswith(setting := f"--set {dotted(name)}="):
            return InputError(f"{name}={str(error).removeprefix(setting)}")
    text = with_urls(as_given(str(error)), (COPIES,))
    return error if text == str(error) else InputError(text)


def dotted(name: str) -> str:
    """Converts a keyword to a configuration key: `training__epochs` to `training.epochs`."""
    return name.replace("__", ".")
