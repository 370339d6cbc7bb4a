"""Every item of the contract has a test."""

import ast
import pathlib

from tests.contract.items import ALL, items_of


def test_every_item_has_a_test():
    named = []
    for file in pathlib.Path(__file__).parent.glob("test_*.py"):
        functions = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef))
        named += [item for function in functions for item in items_of(function.name)]
    assert sorted(set(ALL) - set(named)) == []
    assert sorted(set(named) - set(ALL)) == []
