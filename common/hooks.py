"""Code of installed packages that ctrpipe calls by name: entry points of the groups `ctrpipe.<kind>`.

docs/hooks.md describes each kind. Names are looked up in the metadata of installed packages, so a configuration can
only call installed code.
"""

import contextlib
import functools
import importlib.metadata
from collections.abc import Iterator
from typing import Any

from ctrpipe.common import foreign
from ctrpipe.common.code_version import stage_version
from ctrpipe.common.errors import InputError

GATE = "hook"  # the kind of a gate of a package, in the gate table
# By kind: what one is called in a message.
KINDS = {
    "models": "model",
    "stores": "store",
    "transforms": "transform",
    "losses": "loss",
    "metrics": "metric",
    "gates": "gate",
    "readers": "reader",
    "trackers": "experiment tracker",
    "sections": "report section",
    "exports": "export",
}
# What ctrpipe itself has behind a name, and the extra that it needs.
_SHIPPED = {
    "trackers": {
        "mlflow": "ctrpipe.pipeline.trackers.mlflow:track",
        "wandb": "ctrpipe.pipeline.trackers.wandb:track",
    }
}


@functools.cache
def names(kind: str) -> dict[str, str]:
    """Returns the hooks of a kind by name, each as `module:attribute`, without importing their modules."""
    installed = {point.name: point.value for point in importlib.metadata.entry_points(group=f"ctrpipe.{kind}")}
    return installed | _SHIPPED.get(kind, {})


def check(kind: str, name: str) -> None:
    """Raises InputError unless exactly one installed package has a hook with this name."""
    if name not in names(kind):
        known = ", ".join(sorted(names(kind))) or "none"
        raise InputError(
            f"there is no {KINDS[kind]} {name}; install the package that has it as an entry point of ctrpipe.{kind}; "
            f"installed: {known}"
        )
    if len(places := _places(kind, name)) > 1 and not _is_shipped(kind, name):
        both = " and ".join(f"{value} of {package}" for value, package in places.items())
        raise InputError(f"the {KINDS[kind]} {name} is {both}; uninstall one of the packages")


@functools.cache
def _places(kind: str, name: str) -> dict[str, str]:
    """Returns the hooks with a name as `module:attribute`, each with its package, in order."""
    points = importlib.metadata.entry_points(group=f"ctrpipe.{kind}", name=name)
    return dict(sorted((point.value, point.dist.name if point.dist else "a package") for point in points))


def load(kind: str, name: str) -> Any:
    """Returns a hook.

    Raises:
        InputError: no installed package or several packages have the hook, its module cannot be imported, or it is not
            callable.
    """
    check(kind, name)
    place = names(kind)[name]
    with failures(kind, name):
        hook = importlib.metadata.EntryPoint(name, place, f"ctrpipe.{kind}").load()
    if not callable(hook):
        raise InputError(
            f"the {KINDS[kind]} {name} ({place}) is of type {type(hook).__name__}, which cannot be called; name a "
            "function or a class in the entry point"
        )
    if not _is_shipped(kind, name):
        foreign.called(place)
    return hook


def version(kind: str, name: str) -> str:
    """Returns a hash of the source of a hook's module, and of the modules of its package that it imports.

    Raises:
        InputError: see `load`.
    """
    hook = load(kind, name)
    named = names(kind)[name].partition(":")[0].strip()
    if _is_shipped(kind, name):
        return stage_version(named)
    written = str(getattr(hook, "__module__", named))
    # An instance or a functools.partial says where its class is, which may be a library.
    modules = {named, written} if written.partition(".")[0] == named.partition(".")[0] else {named}
    with failures(kind, name):
        return foreign.source_hash(*modules)


def _is_shipped(kind: str, name: str) -> bool:
    return name in _SHIPPED.get(kind, {})


@contextlib.contextmanager
def failures(kind: str, name: str) -> Iterator[None]:
    """Converts exceptions of a hook in the block to one-line InputErrors. The hook's own InputErrors pass."""
    try:
        yield
    except InputError:
        raise
    # A hook is foreign code, which may raise anything, and may try to end the process.
    except (Exception, SystemExit) as error:
        place = names(kind).get(name, "")
        raise InputError(
            f"the {KINDS[kind]} {name} ({place}) failed ({foreign.reason(error)}); correct it or leave it out"
        ) from error
