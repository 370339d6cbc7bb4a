"""Hashes of the project's code: of all files, or of the modules that a stage imports.

A stage's cache key contains the hash of the modules that the stage imports. A code change therefore reruns the stages
that use the code, and no others. Imports are read from the source, without importing anything.
"""

import ast
import functools
import hashlib
import importlib.util
import pathlib
from collections.abc import Iterator

from ctrpipe.common.packages import PACKAGE, code_files

ROOT = pathlib.Path(__file__).parents[2]  # the folder that contains ctrpipe/, which links to pipeline/


def code_version() -> str:
    """Returns a hash of all code files, byte by byte. Two checkouts of the same code have the same hash."""
    digest = hashlib.sha256()
    for path in code_files(ROOT):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def stage_version(*modules: str) -> str:
    """Returns a hash of some modules and of all project modules that they import.

    The hash covers syntax trees without docstrings. Comments, docstrings and line breaks do not change it, because no
    stage's result depends on them.
    """
    digest = hashlib.sha256()
    for module in sorted(imported(*modules)):
        digest.update(f"{module} {_parse(ROOT, module).digest}\n".encode())
    return digest.hexdigest()[:16]


def imported(*modules: str) -> set[str]:
    """Returns the modules and all project modules that they import, directly or indirectly.

    Imports inside functions count. Imports under `if TYPE_CHECKING:` do not. A string that is exactly a module's name
    counts as an import, as in the tables of models/base/registry.py.

    The packages that contain a module count too, because Python imports them. Strings in a package's __init__.py count
    only if the package itself is imported: models/__init__.py names every model, and a stage that imports one model
    does not depend on the others.
    """
    waiting = list(modules)
    by_name: set[str] = set()
    packages: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in by_name:
            continue
        by_name.add(name)
        parsed = _parse(ROOT, name)
        waiting += parsed.imports | parsed.strings
        for package in set(_packages_of(name)) - packages:
            packages.add(package)
            waiting += _parse(ROOT, package).imports
    return by_name | packages


class _Module:
    """A parsed module.

    Attributes:
        imports: The project modules in its import statements.
        strings: The project modules whose names appear as strings.
        digest: A hash of its syntax tree without docstrings.
    """

    def __init__(self, tree: ast.Module, root: pathlib.Path, package: str):
        self.imports: set[str] = set()
        self.strings: set[str] = set()
        self._root, self._package = root, package
        words: list[str] = []
        self._read(tree, words)
        self.digest = hashlib.sha256("\n".join(words).encode()).hexdigest()

    def _read(self, node: ast.AST, words: list[str]) -> None:
        """Appends the words of a subtree, and collects its imports and strings.

        A single pass, because ast.walk and ast.dump take half of the time of a run's hashes.
        """
        if _is_for_types(node):
            return
        _drop_docstring(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.update(_imports(node, self._root, self._package))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A package's name without a dot, such as "serving", may be an ordinary word.
            if "." in node.value and _file(self._root, node.value):
                self.strings.add(node.value)
        words.append(type(node).__name__)
        for field in node._fields:
            value = getattr(node, field)
            if isinstance(value, ast.AST):
                self._read(value, words)
            elif isinstance(value, list):
                words.append("[")
                for item in value:
                    if isinstance(item, ast.AST):
                        self._read(item, words)
                    else:
                        words.append(repr(item))  # a name, or None for a missing default
                words.append("]")
            else:
                words.append(repr(value))


@functools.cache
def _parse(root: pathlib.Path, module: str) -> _Module:
    """Returns the parsed module. Each module is read once per process, as Python does."""
    path = _file(root, module)
    if path is None:
        raise ModuleNotFoundError(f"no module {module} in {root}")
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    return _Module(ast.parse(path.read_bytes()), root, package)


def _imports(node: ast.Import | ast.ImportFrom, root: pathlib.Path, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names if _file(root, alias.name))
        return
    base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
    for alias in node.names:
        member = f"{base}.{alias.name}"
        name = member if _file(root, member) else base
        if _file(root, name):
            yield name


def _is_for_types(node: ast.AST) -> bool:
    """Returns whether a node is `if TYPE_CHECKING:`. Its imports never run."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _drop_docstring(node: ast.AST) -> None:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        first = node.body[0] if node.body else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
            del node.body[0]


def _packages_of(module: str) -> list[str]:
    parts = module.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def _file(root: pathlib.Path, module: str) -> pathlib.Path | None:
    """Returns the file of a project module, or None if there is no such module."""
    parts = module.split(".")
    if parts[0] != PACKAGE or not all(part.isidentifier() for part in parts):
        return None
    place = root.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
