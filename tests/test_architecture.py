"""The rooms of docs/explanation/architecture.md are the rooms of the code, and imports go down its floors only."""

import ast
import functools
import graphlib
import pathlib
import re
from collections.abc import Iterator

import pytest

from ctrpipe.common.packages import PACKAGE, PARTS, code_files, module_name

ROOT = pathlib.Path(__file__).parents[1]
FOLDERS = (*PARTS, PACKAGE, "benchmarks", "studies")


@functools.cache
def rooms() -> dict[str, str]:
    """The room of each folder or file that the table names: its row, called by the row's first place."""
    rows = re.findall(r"^\| \d+ \| ([^|]+) \|", _table(), re.M)
    places = [re.findall(r"`([^`]+)`", row) for row in rows]
    return {place: row[0] for row in places for place in row}


@functools.cache
def floors() -> dict[str, int]:
    """The floor of each room."""
    rows = re.findall(r"^\| (\d+) \| `([^`]+)`", _table(), re.M)
    return {room: int(floor) for floor, room in rows}


def _table() -> str:
    return (ROOT / "docs" / "explanation" / "architecture.md").read_text()


@functools.cache
def modules() -> dict[str, pathlib.Path]:
    """The files of the product and its benchmarks, by their import name."""
    files = [*code_files(ROOT), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "studies").rglob("*.py")]
    return {module_name(ROOT, file): file.resolve().relative_to(ROOT) for file in files}


def room(module: str) -> str:
    """The room of the innermost place of the table that holds the module's file."""
    file = modules()[module]
    places = (str(place) for place in (file, *file.parents))
    return next((rooms()[place] for place in places if place in rooms()), f"{file}, in no room of the table")


def imports(module: str) -> Iterator[tuple[str, str]]:
    """The modules of the project that a file imports, anywhere in it, each with the name that it takes."""
    for node in ast.walk(ast.parse((ROOT / modules()[module]).read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names if alias.name in modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in modules():
                    yield whole, ""
                elif node.module in modules():
                    yield node.module, alias.name


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_go_down_and_take_nothing_private(folder):
    wrong = []
    for module in modules():
        if modules()[module].parts[0] != folder:
            continue
        here = room(module)
        for other, name in imports(module):
            there = room(other)
            if here == there:
                continue
            if floors().get(here, 0) <= floors().get(there, 99):
                wrong.append(f"{modules()[module]} imports {other}: {there} is not below {here}")
            if name.startswith("_") or other.split(".")[-1].startswith("_"):
                wrong.append(f"{modules()[module]} imports {other} {name}: private to {there}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.slow
def test_no_files_import_each_other_in_a_circle():
    sorter = graphlib.TopologicalSorter({name: {other for other, _ in imports(name)} - {name} for name in modules()})
    sorter.prepare()


def test_every_room_of_the_table_is_there_and_holds_code():
    empty = [place for place in rooms() if not any(file.suffix == ".py" for file in _files(ROOT / place))]
    assert rooms() and not empty, f"docs/explanation/architecture.md names rooms without code: {', '.join(empty)}"


def _files(place: pathlib.Path) -> list[pathlib.Path]:
    return [place] if place.is_file() else list(place.rglob("*"))


def test_the_base_of_models_imports_no_model_no_trees_and_no_text_encoder():
    below = ("ctrpipe.models.base.", "ctrpipe.models.layers.")
    imported = {
        (module, other)
        for module in modules()
        if module.startswith(below)
        for other, _ in imports(module)
        if other.startswith("ctrpipe.models.")
    }
    assert imported and not {pair for pair in imported if not pair[1].startswith(below)}
    few = {f"ctrpipe.models.layers.{name}" for name in ("tree_ensemble", "text_encoder")}
    assert not {pair for pair in imported if pair[0].startswith(below[0]) and pair[1] in few}


def test_a_file_of_the_training_room_imports_few_others():
    training = [module for module in modules() if room(module) == "pipeline/training"]
    counts = {module: len({other for other, _ in imports(module)}) for module in training}
    assert training and not {module: count for module, count in counts.items() if count > 12}
