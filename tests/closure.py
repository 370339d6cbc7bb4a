"""The dependencies of a test file: the modules that it imports, directly or not, and the other files that they name.

Imports are read from the source, wherever they stand, as common/code_version.py does for stages. A string that
equals a module's name counts as an import, so the modules of processes that a test starts count too.
"""

import ast
import dataclasses
import functools
import hashlib
import pathlib
import re
import subprocess
from collections.abc import Collection, Iterator

from ctrpipe.common.packages import PARTS

ROOT = pathlib.Path(__file__).parents[1]
PACKAGES = ("ctrpipe", "tests", "benchmarks", "studies", "kubeflow", "examples", "setup")
COMMAND = "ctrpipe.pipeline.cli"  # what the word `ctrpipe` starts
# Files that decide how every test runs.
OF_EVERY_TEST = (
    "pyproject.toml",
    *(f"locks/{python}.lock" for python in ("3.11", "3.12", "3.13")),
    "tests/conftest.py",
)


@dataclasses.dataclass(frozen=True)
class Source:
    """A parsed file of Python.

    Attributes:
        imports: The project's modules that its import statements name.
        strings: The modules whose names are words of its strings, as in code that a test runs in a separate process.
        words: The words of its strings, docstrings left out, and the parts of paths in them.
        names: The names and attributes in it.
    """

    imports: frozenset[str]
    strings: frozenset[str]
    words: frozenset[str]
    names: frozenset[str]


@functools.cache
def file_of(module: str, root: pathlib.Path = ROOT) -> pathlib.Path | None:
    """Returns the file of a module of the project; None if there is no such module."""
    parts = module.split(".")
    if parts[0] not in PACKAGES or not all(part.isidentifier() for part in parts):
        return None
    place = root.joinpath(*parts)
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


@functools.cache
def parse(path: pathlib.Path, root: pathlib.Path = ROOT) -> Source:
    tree = ast.parse(path.read_bytes())
    imports: set[str] = set()
    texts: set[str] = set()
    names: set[str] = set()
    docstrings = {id(node.value) for node in _walk(tree) if isinstance(node, ast.Expr)}
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            imports.update(alias.name for alias in node.names if file_of(alias.name, root))
        elif isinstance(node, ast.ImportFrom):
            imports.update(_imported_from(node, path, root))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            texts.add(node.value)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
    words = {word for text in texts for word in re.split(r"[\s/]+", text)}
    strings = {word for text in texts for word in re.findall(r"\w+(?:\.\w+)+", text) if file_of(word, root)}
    if "ctrpipe" in words and path.is_relative_to(root / "tests"):
        strings.add(COMMAND)
    return Source(frozenset(imports), frozenset(strings), frozenset(words), frozenset(names))


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yields all nodes except those below `if TYPE_CHECKING:`, whose imports never run."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _walk(child)


def _imported_from(node: ast.ImportFrom, path: pathlib.Path, root: pathlib.Path) -> Iterator[str]:
    base = node.module or ""
    if node.level:
        package = path.relative_to(root).parent.parts
        base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
    for name in (*(f"{base}.{alias.name}" for alias in node.names), base):
        if file_of(name, root):
            yield name


def closure(path: pathlib.Path, root: pathlib.Path = ROOT) -> frozenset[pathlib.Path]:
    """Returns the Python files that a test file depends on, including itself and the conftest.py above it.

    Of the conftest.py of all tests and its plugins, what they import of the product does not count: it warms up.
    """
    tests = root / "tests"
    found: set[pathlib.Path] = set()
    waiting = [tests / "conftest.py"] if (tests / "conftest.py").is_file() else []
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += [one for one in _needs(file, root)[0] if one.is_relative_to(tests)]
    waiting = [path, *(one for one in _conftests(path, tests) if one not in found)]
    packages: set[pathlib.Path] = set()
    while waiting or (waiting := _commands(found, root)):
        file = waiting.pop()
        if file in found and file != path:
            continue
        found.add(file)
        files, further = _needs(file, root)
        waiting += [one for one in files if one not in found]
        while further := [one for one in further if one not in packages]:
            packages.update(further)
            needs = [_needs(one, root, with_strings=False) for one in further]
            waiting += [one for files, _ in needs for one in files if one not in found]
            further = [one for _, others in needs for one in others]
    return frozenset(found | packages)


def _commands(found: set[pathlib.Path], root: pathlib.Path) -> list[pathlib.Path]:
    """Returns the files of the commands that tests name and that are missing so far: commands are imported by name."""
    if file_of(COMMAND, root) not in found:
        return []
    words = {word for file in found if file.is_relative_to(root / "tests") for word in parse(file, root).words}
    files = {file_of(f"ctrpipe.pipeline.commands.{word.replace('-', '_')}", root) for word in words}
    return sorted(file for file in files - found if file)


@functools.cache
def _needs(
    file: pathlib.Path, root: pathlib.Path, with_strings: bool = True
) -> tuple[list[pathlib.Path], list[pathlib.Path]]:
    """Returns the files that a file imports, and the __init__.py of their packages.

    Strings in these do not count: models/__init__.py names every model, and who imports one needs no other.
    """
    source = parse(file, root)
    modules = source.imports | (source.strings if with_strings else frozenset())
    files = {found for module in modules if (found := file_of(module, root))}
    packages = {
        found
        for module in modules
        for count in range(1, module.count(".") + 1)
        if (found := root.joinpath(*module.split(".")[:count], "__init__.py")).is_file()
    }
    return sorted(files), sorted(packages - files)


def _conftests(path: pathlib.Path, tests: pathlib.Path) -> list[pathlib.Path]:
    folders = [folder for folder in path.parents if folder.is_relative_to(tests)]
    return [folder / "conftest.py" for folder in folders if (folder / "conftest.py").is_file()]


def other_files(root: pathlib.Path = ROOT) -> list[str]:
    """Returns the project's files that are not Python, by their paths."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True, text=True, check=True
    )
    found = [name for name in listed.stdout.split("\0") if name and not name.endswith(".py")]
    return sorted(name for name in found if (root / name).is_file())


def is_named(name: str, places: set[str], words: set[str]) -> bool:
    """Returns whether Python files in `places` depend on another file: it is beside or below one, or a word names it.

    A word names a file by its name, or by its top-level folder.
    """
    if name in OF_EVERY_TEST:
        return True
    top, _, below = name.partition("/")
    if name.rpartition("/")[2] in words or (below and top not in (*PARTS, "tests", "ctrpipe") and top in words):
        return True
    return any(str(folder) in places for folder in pathlib.PurePosixPath(name).parents)


def depends_on_all(path: pathlib.Path, root: pathlib.Path = ROOT) -> bool:
    """Returns whether a test file reads all files of the project, itself or by a module of tests that it imports."""
    used = [parse(file, root) for file in (path, *_needs(path, root)[0]) if file.is_relative_to(root / "tests")]
    return any(
        "code_files" in source.names or "ls-files" in source.words or {"ROOT", "rglob"} <= source.names
        for source in used
    )


def digest(path: pathlib.Path, others: Collection[str], root: pathlib.Path = ROOT) -> str:
    """Returns a hash of all bytes that a test file depends on.

    Args:
        path: The file of tests.
        others: The project's files that are not Python.
        root: The project's folder.
    """
    files = closure(path, root)
    words = {word for file in files for word in parse(file, root).words}
    total = hashlib.sha256()
    if depends_on_all(path, root):
        everything = sorted({*others, *(str(one.relative_to(root)) for one in _all_code(root))})
    else:
        code = [str(file.relative_to(root)) for file in files]
        places = {str(file.parent.resolve().relative_to(root.resolve())) for file in files} - {".", "tests", "ctrpipe"}
        everything = sorted([*code, *(name for name in others if is_named(name, places, words))])
    for name in everything:
        total.update(f"{name} {_digest_of(root / name)}\n".encode())
    return total.hexdigest()


@functools.cache
def _digest_of(path: pathlib.Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@functools.cache
def _all_code(root: pathlib.Path) -> tuple[pathlib.Path, ...]:
    return tuple(sorted(path for top in (*PARTS, *PACKAGES) for path in (root / top).rglob("*.py")))
