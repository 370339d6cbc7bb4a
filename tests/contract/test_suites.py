"""docs/contract-suites.md: its counts are those of its rows, and every test that it names is there."""

import ast
import re

import pytest

from tests.contract.items import DOCUMENT

TEXT = (DOCUMENT.parent / "contract-suites.md").read_text()
_COUNTS = re.compile(r"\| \[([^]]+)\]\(https://\S+\) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|")
UNMODIFIED = "passes, unmodified"
CANNOT = "cannot apply: "


def rows_by_suite():
    """Returns pairs of a test there and its counterpart here, by suite."""
    suites = {}
    for section in TEXT.split("\n## ")[1:]:
        name, _, table = section.partition("\n")
        rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")]
        suites[name] = rows[1:]  # below the heading
    return suites


def functions_of(file):
    functions = ast.walk(ast.parse((DOCUMENT.parents[1] / "tests" / "contract" / file).read_text()))
    return {node.name for node in functions if isinstance(node, ast.FunctionDef)}


def test_the_counts_are_those_of_the_rows():
    counted = {}
    for name, rows in rows_by_suite().items():
        beside = [here for _, here in rows]
        unmodified, cannot = beside.count(UNMODIFIED), sum(here.startswith(CANNOT) for here in beside)
        counted[name] = (len(rows), unmodified, len(rows) - unmodified - cannot, cannot)
    assert counted == {name: tuple(map(int, counts)) for name, *counts in _COUNTS.findall(TEXT)}
    assert len(counted) == 14


@pytest.mark.slow
def test_every_test_that_is_named_is_there():
    named = [here for rows in rows_by_suite().values() for _, here in rows if not here.startswith((UNMODIFIED, CANNOT))]
    found = [re.fullmatch(r"`(test_\w+\.py)` `(test_\w+)`", here) for here in named]
    assert all(found)
    assert [match[0] for match in found if match[2] not in functions_of(match[1])] == []


def test_what_cannot_apply_has_a_reason():
    reasons = [here.removeprefix(CANNOT) for rows in rows_by_suite().values() for _, here in rows if CANNOT in here]
    assert reasons and all(len(reason.split()) > 4 for reason in reasons)
