"""Code of installed packages that ctrpipe calls by a name: entry points of the groups `ctrpipe.<kind>`.

docs/hooks.md describes each kind. A name is looked up in the metadata of installed packages, so that a configuration
from elsewhere calls nothing that is not installed.
"""

import contextlib
import functools
import hashlib
import importlib.metadata
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from ctrpipe.common.errors import InputError, one_line

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
    """Returns the hooks of a kind by name, each as `module:attribute`. Imports no module of them."""
    found = {point.name: point.value for point in importlib.metadata.entry_points(group=f"ctrpipe.{kind}")}
    return found | _SHIPPED.get(kind, {})


def check(kind: str, name: str) -> None:
    """Raises InputError if no installed package has a hook of that name."""
    if name not in names(kind):
        known = ", ".join(sorted(names(kind))) or "none"
        raise InputError(
            f"there is no {KINDS[kind]} {name}; install the package that has it as an entry point of ctrpipe.{kind}; "
            f"installed: {known}"
        )


def load(kind: str, name: str) -> Any:
    """Returns a hook.

    Raises:
        InputError: no installed package has it, or its module cannot be imported.
    """
    check(kind, name)
    place = names(kind)[name]
    with failures(kind, name):
        return importlib.metadata.EntryPoint(name, place, f"ctrpipe.{kind}").load()


def version(kind: str, name: str) -> str:
    """Returns a hash of the source of a hook's module.

    Raises:
        InputError: see `load`.
    """
    hook = load(kind, name)
    with failures(kind, name):
        return hashlib.sha256(inspect.getsource(sys.modules[hook.__module__]).encode()).hexdigest()[:16]


@contextlib.contextmanager
def failures(kind: str, name: str) -> Iterator[None]:
    """Converts what a hook raises in the block to InputError with one line. Its own InputErrors pass."""
    try:
        yield
    except InputError:
        raise
    # A hook is foreign code, which may raise anything.
    except Exception as error:
        reason = one_line(f"{type(error).__name__}: {error}", 200)
        place = names(kind).get(name, "")
        raise InputError(f"the {KINDS[kind]} {name} ({place}) failed ({reason}); correct it or leave it out") from error
