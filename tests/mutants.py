"""Measures whether the tests detect mistakes: changes random lines of the product and runs the tests that reach them.

    python -m tests.mutants --lines 40 --seed 0
    python -m tests.mutants --lines 40 --seed 0 --before ../old

A line is changed like a slip: a comparison reversed, + for -, a number off by one, `and` for `or`, a condition negated,
a statement left out. The tests are those of the files that import the line's module, nearest first, up to the first
failure; each line has a time limit. With --before, the tests of another checkout of the product are run on each missed
line. If they miss it too, the line is skipped as unguarded.

Lines of the command's output begin with `caught`, `MISSED` or `unguarded`. It works in copies of the checkouts.
"""

import ast
import copy
import dataclasses
import functools
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import click

from ctrpipe.common.packages import code_files
from tests import closure

ROOT = pathlib.Path(__file__).parents[1]
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
LEAST_SECONDS = 20.0  # of a further run of tests


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A changed line.

    Attributes:
        path: The file, from the project's folder.
        line: The first line that is changed.
        before, after: What stands there, and what the change puts in its place.
        text: The whole file with the change.
    """

    path: str
    line: int
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in a node's place."""
    changed = copy.deepcopy(node)
    if isinstance(changed, ast.Compare) and type(changed.ops[0]) in COMPARISONS:
        changed.ops[0] = COMPARISONS[type(changed.ops[0])]()
        yield changed
    elif isinstance(changed, ast.BinOp) and type(changed.op) in OPERATIONS:
        changed.op = OPERATIONS[type(changed.op)]()
        yield changed
    elif isinstance(changed, ast.BoolOp):
        changed.op = ast.Or() if isinstance(changed.op, ast.And) else ast.And()
        yield changed
    elif isinstance(changed, ast.IfExp):
        changed.test = ast.UnaryOp(ast.Not(), changed.test)
        yield changed
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, bool):
        yield ast.Constant(not changed.value)
    elif isinstance(changed, ast.Constant) and isinstance(changed.value, int):
        yield ast.Constant(changed.value + 1)
    elif isinstance(changed, ast.AugAssign) or (isinstance(changed, ast.Expr) and isinstance(changed.value, ast.Call)):
        yield ast.Pass()


def mutants_of(path: str, text: str) -> list[Mutant]:
    """All changes of the lines of a file's functions; not of what is a type, a message or a docstring."""
    lines = text.splitlines(keepends=True)
    found = []
    for node in _nodes(ast.parse(text)):
        before = ast.get_source_segment(text, node)
        if before is None or not isinstance(node, ast.expr | ast.stmt):
            continue
        start, end = (node.lineno - 1, node.col_offset), ((node.end_lineno or 0) - 1, node.end_col_offset or 0)
        for change in changes(node):
            after = ast.unparse(ast.fix_missing_locations(change))
            whole = after if isinstance(change, ast.stmt) else f"({after})"
            # Offsets are of bytes.
            head = b"".join(line.encode() for line in lines[: start[0]]) + lines[start[0]].encode()[: start[1]]
            tail = lines[end[0]].encode()[end[1] :] + b"".join(line.encode() for line in lines[end[0] + 1 :])
            changed = (head + whole.encode() + tail).decode()
            if _compiles(changed):
                found.append(Mutant(path, node.lineno, " ".join(before.split()), after, changed))
    return found


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False  # a part of an f-string, whose place in the file Python does not tell
    return True


def _nodes(tree: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "args", "decorator_list") and not isinstance(tree, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Raise):
                continue
            is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
            if inside and not is_function:
                yield child
            yield from _nodes(child, inside or is_function)


@functools.cache
def _reached(root: pathlib.Path) -> list[tuple[pathlib.Path, frozenset[pathlib.Path], frozenset[pathlib.Path]]]:
    """Each file of tests, the files that it depends on, and those that it imports itself.

    Kept for a checkout: finding them takes most of a minute, and a changed line imports nothing else.
    """
    found = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        own = (closure.file_of(name, root) for name in closure.parse(file, root).imports)
        needed = frozenset(one.resolve() for one in closure.closure(file, root))
        found.append((file, needed, frozenset(one.resolve() for one in own if one)))
    return found


def files_for(path: str, root: pathlib.Path) -> list[str]:
    """The files of tests that reach a file of the product, nearest first.

    Nearest are those that import it themselves, and of these the ones that depend on least.
    """
    target = (root / path).resolve()
    found = [
        (target not in own, target.stem not in file.stem, len(needed), file)
        for file, needed, own in _reached(root)
        if target in needed
    ]
    return [str(file.relative_to(root)) for *_, file in sorted(found)]


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What tests say of a line: the test that failed, "" where none did; and whether the time was enough to ask all."""

    test: str
    asked_all: bool


class Checkout:
    """A copy of a checkout, whose tests are run on changed lines.

    Args:
        root: The checkout.
        folder: Where to put the copy.
        lane: Pytest's -m.
    """

    def __init__(self, root: pathlib.Path, folder: pathlib.Path, lane: str):
        self.folder, self._lane = folder, lane
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (root / name).exists() or (root / name).is_symlink():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name, follow_symlinks=False)
        subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
        subprocess.run(["git", "add", "-A"], cwd=folder, check=True)

    def ask(self, mutant: Mutant, seconds: float) -> Verdict:
        """Runs the tests on a changed line."""
        place, files = self.folder / mutant.path, files_for(mutant.path, self.folder)
        end = time.monotonic() + seconds
        original = place.read_text()
        place.write_text(mutant.text)
        try:
            for group in (files[:3], files[3:10], files[10:]):
                left = end - time.monotonic()
                if not group:
                    return Verdict("", True)
                if left < LEAST_SECONDS and group is not files[:3]:
                    return Verdict("", False)
                failed, ended = self._run(group, max(left, LEAST_SECONDS))
                if failed or not ended:
                    return Verdict(failed, ended)
            return Verdict("", True)
        finally:
            place.write_text(original)

    def _run(self, files: list[str], seconds: float) -> tuple[str, bool]:
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", self._lane, "--tb=no", "-rfE"]
        command = [sys.executable, "-m", "pytest", *options, *files]
        kept = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
        process = subprocess.Popen(
            command, cwd=self.folder, env=kept, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return "", False
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", said, re.M)
        return (found[1] if found else "" if process.returncode in (0, 5) else "the run itself"), True


def draw(root: pathlib.Path, seed: int) -> Iterator[Mutant]:
    """Changed lines of the product in a random order, each line once, each as likely as another."""
    places = [
        (path, number + 1)
        for path in sorted(str(path.resolve().relative_to(root.resolve())) for path in code_files(root))
        for number in range(len((root / path).read_text().splitlines()))
    ]
    chosen = random.Random(seed)
    chosen.shuffle(places)
    known: dict[str, list[Mutant]] = {}
    for path, line in places:
        if path not in known:
            known[path] = mutants_of(path, (root / path).read_text())
        if on_line := [mutant for mutant in known[path] if mutant.line == line]:
            yield chosen.choice(on_line)


@click.command()
@click.option("--lines", default=40, show_default=True, help="Lines to change; with --before, lines that are guarded.")
@click.option("--seed", default=0, show_default=True, help="Seed of the choice.")
@click.option("--seconds", default=180.0, show_default=True, help="Limit of time for a line, in each checkout.")
@click.option("--lane", default="not large", show_default=True, help="Pytest's -m: the tests to ask.")
@click.option("--before", type=click.Path(exists=True, path_type=pathlib.Path), help="A checkout with other tests.")
@click.option("--skip", default=0, show_default=True, help="Lines of the same seed that were asked before.")
def main(lines: int, seed: int, seconds: float, lane: str, before: pathlib.Path | None, skip: int) -> None:
    """Says of random lines of the product whether the tests notice that they are changed."""
    caught = asked = 0
    with tempfile.TemporaryDirectory(prefix="ctrpipe-mutants-") as folder:
        here = Checkout(ROOT, pathlib.Path(folder) / "here", lane)
        other = Checkout(before.resolve(), pathlib.Path(folder) / "before", lane) if before else None
        for number, mutant in enumerate(draw(ROOT, seed)):
            if number < skip:
                continue
            if asked == lines:
                break
            verdict = here.ask(mutant, seconds)
            how = f"by {verdict.test}" if verdict.test else "" if verdict.asked_all else "(out of time)"
            if not verdict.test and other:
                verdict_before = other.ask(mutant, seconds)
                if not verdict_before.test:
                    reason = "no test" if verdict_before.asked_all else "out of time"
                    click.echo(f"unguarded ({reason})  {mutant}")
                    continue
                how = f"{how} before: by {verdict_before.test}".lstrip()
            asked += 1
            caught += bool(verdict.test)
            click.echo(f"{'caught' if verdict.test else 'MISSED'}  {mutant}  {how}")
    click.echo(f"{caught} of {asked} changed lines were caught" + (", all of them guarded before" if other else ""))


if __name__ == "__main__":
    main()
