"""Hashes of the project's code: of all of it, and of what a stage imports.

A stage's cache key holds the hash of what that stage imports: changed code runs again the stages that it is part of,
and no others. Imports are read from the source, so that nothing has to be imported for it.
"""

import ast
import functools
import hashlib
import importlib.util
import pathlib
from collections.abc import Iterator

from ctrpipe.common.packages import PACKAGE, code_files

ROOT = pathlib.Path(__file__).parents[2]  # of ctrpipe/, which links to pipeline/
# The code on which trained weights depend: training, what it begins with, and the stages that make its rows.
TRAINING = (
    "ctrpipe.pipeline.training.train",
    "ctrpipe.pipeline.training.parent",
    "ctrpipe.pipeline.components.log_example_gen",
    "ctrpipe.pipeline.components.log_transform",
)


def code_version() -> str:
    """Returns a hash of all files of code, byte by byte: equal for two checkouts of the same code."""
    digest = hashlib.sha256()
    for path in code_files(ROOT):
        digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def stage_version(*modules: str) -> str:
    """Returns a hash of the code of some modules and of all project modules that they import.

    It covers syntax trees without docstrings. A changed comment, docstring or line break gives the same hash, because
    no stage's result depends on one.
    """
    digest = hashlib.sha256()
    for module in sorted(imported(*modules)):
        digest.update(f"{module} {_parse(ROOT, module).digest}\n".encode())
    return digest.hexdigest()[:16]


def imported(*modules: str) -> set[str]:
    """Returns the modules, and all modules of the project that they import, directly or not.

    An import counts wherever it stands, also inside a function, but not below `if TYPE_CHECKING:`. So does each string
    that is exactly a module's name, as in the tables of models/base/registry.py.

    The packages that a module lies in count as well, because Python imports them. Strings in their __init__.py count
    only where the package itself is imported: models/__init__.py names every model, and a stage that imports one model
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
    """A parsed file.

    Attributes:
        imports: The project modules that its import statements name.
        strings: The project modules whose names are strings in it.
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
        """Appends the words of a subtree, and notes its imports and strings.

        One pass, because ast.walk and ast.dump take half of the time of a run's hashes.
        """
        if _is_for_types(node):
            return
        _drop_docstring(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.update(_imports(node, self._root, self._package))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # A package's name alone, as "serving", is a word like any other.
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
                        words.append(repr(item))  # None for a missing default, or a name
                words.append("]")
            else:
                words.append(repr(value))


@functools.cache
def _parse(root: pathlib.Path, module: str) -> _Module:
    """Returns the parsed module; each is read once in a process, as Python does it."""
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
    """Returns whether a node is `if TYPE_CHECKING:`, whose imports never run."""
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
    """Returns the file of a project module; None where there is no such module."""
    parts = module.split(".")
    if parts[0] != PACKAGE or not all(part.isidentifier() for part in parts):
        return None
    place = root.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)
