"""Caches results that Beam computes again for every step of every pipeline.

A small run has 260 steps in its pipelines. For each of them Beam inspects the signatures of all methods of a DoFn, and
for each look at the options it builds the parser of their flags anew: both together are a quarter of a run's CPU time.
Both give the same for the same function, and for the same flags. Processes that a test starts anew do without this.
"""

import copy
import sys
import types
import weakref
from collections.abc import Sequence
from typing import Any

_Arguments = tuple[list[str], list[Any]]


def remember() -> None:
    """Turns the cache on for the rest of the process, and for its forks."""
    from apache_beam.options import pipeline_options  # Lazy: 1 s; processes of one file do without it.
    from apache_beam.transforms import core

    core.get_function_args_defaults = remembered_arguments(core.get_function_args_defaults)
    pipeline_options.PipelineOptions.__init__ = remembered_options(pipeline_options.PipelineOptions.__init__)


def remembered_arguments(find: Any) -> Any:
    """Returns `find(function)`, which gives names and defaults of arguments, with a cache per function and binding."""
    known: tuple[weakref.WeakKeyDictionary[Any, _Arguments], ...] = (
        weakref.WeakKeyDictionary(),
        weakref.WeakKeyDictionary(),
    )

    def arguments(function: Any) -> _Arguments:
        is_bound = type(function) is types.MethodType
        plain = function.__func__ if is_bound else function
        if type(plain) is not types.FunctionType:
            return find(function)
        if (found := known[is_bound].get(plain)) is None:
            known[is_bound][plain] = found = find(function)
        names, defaults = found
        return list(names), list(defaults)

    return arguments


def remembered_options(initialise: Any) -> Any:
    """Returns `PipelineOptions.__init__` with a cache: it parses flags once per class of options."""
    known: dict[tuple[type, tuple[str, ...]], dict[str, Any]] = {}

    def init(self: Any, flags: Sequence[str] | None = None, **changes: Any) -> None:
        if isinstance(flags, str):
            initialise(self, flags, **changes)  # refuses them
        key = type(self), tuple(sys.argv[1:] if flags is None else flags)
        if key not in known:
            initialise(self, flags, **changes)
            known[key] = _copied(vars(self._visible_options))
            return
        self._flags = flags
        self._visible_options = types.SimpleNamespace(**_copied(known[key]))
        self._all_options = changes
        for name, value in vars(self._visible_options).items():
            changes.setdefault(name, value)

    return init


def _copied(values: dict[str, Any]) -> dict[str, Any]:
    return {name: copy.copy(value) if isinstance(value, list | dict) else value for name, value in values.items()}
