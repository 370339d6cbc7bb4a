"""docs/contract.md: every item has a reason and a test, and every code that is used is an item."""

import ast
import pathlib
import re

import pytest

from ctrpipe.common.packages import PARTS
from tests.contract.items import DOCUMENT, items_of, read_items

ROOT = DOCUMENT.parents[1]
ITEMS = read_items()
_SOURCE = r"\[[^]]+\](?: \w+)?"  # a file, and of a test file the test
_CODES = r"[A-Z]\d+(?:(?:-|, | to | and )[A-Z]?\d+)*"
_IN_BRACKETS = re.compile(rf"\((?:contract )?({_CODES})\)")
_ANYWHERE = re.compile(rf"\b[{''.join(sorted({code[0] for code in ITEMS}))}]\d{{1,2}}\b")
# Where such words mean nothing else: elsewhere C1 is a column of Criteo's log.
_OF_THE_CONTRACT = ("serving/server", "tests/contract")


def named_by_tests() -> set[str]:
    files = (ROOT / "tests" / "contract").glob("test_*.py")
    nodes = (node for file in files for node in ast.walk(ast.parse(file.read_text())))
    return {code for node in nodes if isinstance(node, ast.FunctionDef) for code in items_of(node.name)}


def test_every_item_has_a_test():
    tested = named_by_tests()
    assert sorted(code for code, item in ITEMS.items() if not item.is_advice and code not in tested) == []
    assert sorted(tested - set(ITEMS)) == []


def test_codes_are_numbered_without_a_gap():
    for letter in {code[0] for code in ITEMS}:
        numbers = [int(code[1:]) for code in ITEMS if code[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1)), letter
    assert len(ITEMS) == DOCUMENT.read_text().count("\n- **")


def test_every_item_has_a_source_of_tensorflow_serving():
    text = DOCUMENT.read_text()
    sources = dict(re.findall(r"^\[(.+)\]: (https://github.com/tensorflow/\S+)$", text, re.MULTILINE))
    used = set()
    for code, item in ITEMS.items():
        reason = re.fullmatch(rf".*\. \(({_SOURCE}(?:, {_SOURCE})*)\)", item.text)
        assert reason, code
        used |= set(re.findall(r"\[([^\]]+)\]", reason[1]))
    assert used | {"9d981c5c"} == set(sources)


def codes_used(text: str, everywhere: bool) -> set[str]:
    """The codes in a file's text, both ends of a range."""
    bracketed = {code for group in _IN_BRACKETS.findall(text) for code in re.findall(r"[A-Z]\d+", group)}
    return bracketed | (set(_ANYWHERE.findall(text)) if everywhere else set())


@pytest.mark.parametrize(
    ("text", "everywhere", "codes"),
    [
        ("refused (P16), as the label (contract V7)", False, {"P16", "V7"}),
        ("its queue (B1 to B5, B7)", False, {"B1", "B5", "B7"}),
        ("(V1-V5), not C14", False, {"V1", "V5"}),
        ("P1, P5-P20", True, {"P1", "P5", "P20"}),
    ],
)
def test_codes_are_found_in_a_text(text, everywhere, codes):
    assert codes_used(text, everywhere) == codes


def test_every_code_used_is_an_item():
    unknown = {}
    for folder in (*PARTS, "ctrpipe", "benchmarks", "studies", "tests", "docs"):
        for path in sorted((ROOT / folder).rglob("*.*")):
            if path.suffix not in (".py", ".md") or path == pathlib.Path(__file__):
                continue
            inside = path.relative_to(ROOT).as_posix().startswith(_OF_THE_CONTRACT)
            if wrong := codes_used(path.read_text(), inside) - set(ITEMS):
                unknown[str(path.relative_to(ROOT))] = sorted(wrong)
    assert unknown == {}
