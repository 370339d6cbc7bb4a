"""Third-party code that ctrpipe calls: hooks of installed packages, and a user's own models.

Its failures are not defects of ctrpipe. Its source, with the modules that it imports, affects the results of a run.
"""

import ast
import functools
import hashlib
import importlib.machinery
import importlib.util
import pathlib
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator

from ctrpipe.common.errors import one_line

_called: set[str] = set()  # the top-level modules of code of others that this process calls
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_OF_PYTHON = frozenset(map(sysconfig.get_path, ("stdlib", "platstdlib")))
_INSTALLED = ("site-packages", "dist-packages")


def called(module: str) -> None:
    """Records that ctrpipe calls code of a module, for `failure`."""
    _called.add(module.partition(".")[0])


def message(error: BaseException) -> str:
    """Returns the message of an error as one line, without the colors and the tensors that Keras adds to it."""
    text, added = str(error), "Arguments received by"
    if added in text and isinstance(error, KeyError):  # it shows its message quoted
        text = str(error.args[0])
    return one_line(_COLOR.sub("", text.partition(added)[0]))


def reason(error: BaseException) -> str:
    """Returns the type and the message of an error as one line."""
    said = message(error)
    return one_line(f"{type(error).__name__}: {said}" if said else type(error).__name__, 200)


def failure(error: BaseException) -> str:
    """Returns where and how third-party code failed, for a message; "" if the error does not come from such code."""
    for frame in reversed(list(traceback.walk_tb(error.__traceback__))):
        name = str(frame[0].f_globals.get("__name__", ""))
        if name.partition(".")[0] in _called:
            place = f"{frame[0].f_code.co_filename}, line {frame[1]}"
            return f"{place}: code of {name.partition('.')[0]} failed ({reason(error)}); correct it or leave it out"
    return ""


def source_hash(*modules: str) -> str:
    """Returns a hash of the source of imported modules, and of the neighbouring modules that they import.

    Neighbouring modules are in the same top-level package, or in the same folder unless packages are installed there.
    Modules without source, such as compiled ones, are hashed by their bytes.

    Raises:
        ImportError: one of the modules cannot be found.
    """
    waiting, reached = list(modules), set[str]()
    digest = hashlib.sha256()
    while waiting:
        name = waiting.pop()
        if name in reached:
            continue
        reached.add(name)
        waiting += _beside(name)
    for name in sorted(reached):
        digest.update(name.encode() + _bytes(name))
    return digest.hexdigest()[:16]


def _spec(module: str) -> importlib.machinery.ModuleSpec | None:
    """Returns a module's spec; None if it cannot be found without importing it."""
    loaded = sys.modules.get(module)
    if loaded is not None:
        return getattr(loaded, "__spec__", None)
    parent = module.rpartition(".")[0]
    if parent and not hasattr(sys.modules.get(parent), "__path__"):
        return None
    try:
        return importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None


def _source(module: str) -> str:
    """Returns the source of a module; "" if it has none."""
    spec = _spec(module)
    get_source = getattr(spec.loader, "get_source", None) if spec else None
    return get_source(module) or "" if get_source else ""


def _bytes(module: str) -> bytes:
    spec, source = _spec(module), _source(module)
    path = pathlib.Path(spec.origin) if spec and spec.has_location and spec.origin else None
    return source.encode() if source or path is None or not path.is_file() else path.read_bytes()


def _beside(module: str) -> Iterator[str]:
    """Yields the neighbouring modules that a module imports, and its parent package."""
    parent = module.rpartition(".")[0]
    if parent:
        yield parent
    spec = _spec(module)
    package = module if spec and spec.submodule_search_locations is not None else parent
    for node in ast.walk(ast.parse(_source(module))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        else:
            continue
        yield from (name for name in names if _is_beside(name, module) and _spec(name))


def _is_beside(name: str, module: str) -> bool:
    top, own = name.partition(".")[0], module.partition(".")[0]
    if top == own:
        return True
    folder = _folder(own)
    return folder == _folder(top) != "" and folder not in _OF_PYTHON and pathlib.Path(folder).name not in _INSTALLED


@functools.cache
def _folder(top: str) -> str:
    """Returns the folder of a top-level module; "" if it has none."""
    spec = _spec(top)
    if not (spec and spec.has_location and spec.origin):
        return ""
    path = pathlib.Path(spec.origin)
    return str(path.parents[1] if spec.submodule_search_locations is not None else path.parent)
