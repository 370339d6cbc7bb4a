"""Prints figures of the code's structure: `python -m tests.code_figures`.

docs/explanation/architecture.md has the rooms. An arrow is a pair of rooms: the first imports the second. The other
figures are counted in the syntax trees of the product, without tests, benchmarks and studies.
"""

import argparse
import ast
import collections
import functools
import itertools
import re
from collections.abc import Iterable, Iterator

from ctrpipe.common.packages import code_files, module_name
from tests.test_architecture import ROOT, floors, imports, modules, room

KINDS = frozenset(("Numeric", "Categorical", "Multivalent", "ItemSequence", "Time", "Text", "Vector"))
# Folders in which such names are not kinds of features: a generator's columns, layers, a text on the terminal.
NO_KINDS = ("common", "transforms/generate", "models")
_REASON = re.compile(r"# [Ll]azy(: |, see )")


def arrows() -> dict[tuple[str, str], list[str]]:
    """Returns the imports between rooms, by the pair of rooms."""
    between: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for module in modules():
        here = room(module)
        for other, name in imports(module):
            if (there := room(other)) != here:
                between[here, there].append(f"{modules()[module]}: {other} {name}".rstrip())
    return between


def figures() -> dict[str, int]:
    """Returns the figures of the product's code by name."""
    counts: collections.Counter[str] = collections.Counter()
    for file in code_files(ROOT):
        place = file.resolve().relative_to(ROOT)
        text = file.read_text()
        tree = ast.parse(text)
        counts["files"] += 1
        counts["lines"] += text.count("\n")
        counts["functions"] += sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))
        counts["Any"] += sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(tree))
        counts["lazy imports"] += sum(1 for _ in lazy_imports(tree))
        counts["lazy imports without a reason"] += len(without_reason(text))
        counts["lazy imports of loaded modules"] += sum(1 for _ in needless_imports(module_name(ROOT, file)))
        counts["module globals re-bound"] += sum(isinstance(node, ast.Global) for node in ast.walk(tree))
        if not str(place).startswith(NO_KINDS):
            counts["isinstance checks of kinds"] += sum(1 for _ in checks_of_kinds(tree))
    return dict(counts)


def lazy_imports(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yields the import statements within functions."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    within = {id(node): node for function in functions for node in ast.walk(function)}
    yield from (node for node in within.values() if isinstance(node, ast.Import | ast.ImportFrom))


def without_reason(text: str) -> list[int]:
    """Returns the line of each block of lazy imports whose comment does not begin with `Lazy:` or `Lazy, see`.

    The comment stands above the block, or on a line of it. One comment serves all imports of a block.
    """
    tree, lines = ast.parse(text), text.splitlines()
    lazy = {id(node) for node in lazy_imports(tree)}
    unexplained = []
    for node in ast.walk(tree):
        for body in (getattr(node, name, []) for name in ("body", "orelse", "finalbody")):
            statements = body if isinstance(body, list) else []
            for is_lazy, group in itertools.groupby(statements, lambda statement: id(statement) in lazy):
                if is_lazy:
                    block = list(group)
                    first, last = block[0].lineno - 1, block[-1].end_lineno
                    above = itertools.takewhile(lambda line: line.strip().startswith("#"), lines[first - 1 :: -1])
                    if not any(_REASON.search(line) for line in (*above, *lines[first:last])):
                        unexplained.append(first + 1)
    return unexplained


def needless_imports(module: str) -> Iterator[ast.stmt]:
    """Yields the lazy imports that save no time, because importing their own file loads all that they name."""
    before = _loaded(module)
    yield from (each for each in lazy_imports(_tree(module)) if before.issuperset(_named(each)))


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / modules()[module]).read_text())


@functools.cache
def _loaded(module: str) -> frozenset[str]:
    """Returns the modules that are loaded with one of the project's, and the packages that they are in."""
    found, left = set[str](), [module]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += [name.rpartition(".")[0]] if "." in name else []
            if name in modules():
                left += _own_imports(name)
    return frozenset(found)


@functools.cache
def _own_imports(module: str) -> list[str]:
    """Returns what a module of the project imports when it is imported."""
    return [other for each in _run_at_import(_tree(module).body) for other in _named(each)]


def _run_at_import(nodes: Iterable[ast.AST]) -> Iterator[ast.stmt]:
    """Yields the import statements outside functions and outside `if TYPE_CHECKING`."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from _run_at_import(node.orelse)
        elif isinstance(node, ast.stmt | ast.ExceptHandler) and not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef
        ):
            yield from _run_at_import(ast.iter_child_nodes(node))


def _named(statement: ast.stmt) -> list[str]:
    """Returns the modules that an import statement names."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if not isinstance(statement, ast.ImportFrom) or not statement.module:
        return []
    source = statement.module
    wholes = [f"{source}.{alias.name}" for alias in statement.names]
    return [whole if whole in modules() or _looks_up_names(source) else source for whole in wholes]


def _looks_up_names(module: str) -> bool:
    """Returns whether a package of the project loads a module when one of its names is asked for."""
    own = _tree(module).body if module in modules() else ()
    return any(isinstance(node, ast.FunctionDef) and node.name == "__getattr__" for node in own)


def checks_of_kinds(tree: ast.Module) -> Iterator[ast.Call]:
    """Yields the calls of isinstance that ask for a kind of features."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            names = {each.id for each in ast.walk(node.args[1]) if isinstance(each, ast.Name)}
            names |= {each.attr for each in ast.walk(node.args[1]) if isinstance(each, ast.Attribute)}
            if names & KINDS:
                yield node


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--arrows", type=int, default=0, metavar="N", help="list arrows of at most N imports")
    parser.add_argument(
        "--imports", type=int, default=0, metavar="N", help="list files that import more than N modules"
    )
    options = parser.parse_args()
    between = arrows()
    product = [pair for pair in between if not pair[0].startswith(("benchmarks", "studies"))]
    print(f"rooms: {len(floors())}")
    print(f"arrows: {len(between)}, without benchmarks and studies {len(product)}")
    for name, count in figures().items():
        print(f"{name}: {count:,}")
    for (here, there), lines in sorted(between.items(), key=lambda item: len(item[1])):
        if len(lines) <= options.arrows:
            print(f"{here} -> {there}: {len(lines)}", *lines, sep="\n    ")
    for module in sorted(modules()) if options.imports else ():
        count = len({other for other, _ in imports(module)})
        if count > options.imports:
            print(f"{modules()[module]}: {count} imports")


if __name__ == "__main__":
    main()
