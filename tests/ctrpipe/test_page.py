"""What docs/python.md shows exists: its functions, their arguments, keys and results' attributes."""

import ast
import inspect
import re

import pytest

import ctrpipe
from ctrpipe.pipeline.config.keys import known_keys
from tests.e2e.small_run import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text()
CODE = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
# The function, then the result and its attributes.
ROW = re.compile(r"^\| `(\w+)\(.*?\)` \| .*? \| (?:`(\w+)`)(?:: (.*))?", re.M)


def calls() -> list[ast.Call]:
    """The calls of functions of ctrpipe that the page shows."""
    nodes = (node for text in CODE for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
    return [node for node in nodes if re.fullmatch(r"ctrpipe\.\w+", ast.unparse(node.func))]


@pytest.mark.parametrize("call", calls(), ids=ast.unparse)
def test_a_call_that_is_shown_has_the_functions_arguments(call):
    function = getattr(ctrpipe, call.func.attr)
    keywords = {keyword.arg: None for keyword in call.keywords}
    bound = inspect.signature(function).bind(*call.args, **keywords)
    for key in bound.arguments.get("settings", ()):
        assert key.replace("__", ".") in known_keys("deepfm"), key
    assert function.__doc__ and "Args:" in function.__doc__ and "Example:" in function.__doc__


def test_the_table_has_every_function_and_what_it_returns():
    rows = ROW.findall(PAGE)
    functions = {name for name in ctrpipe.__all__ if name[0].islower()}
    assert {name for name, _, _ in rows} == functions
    for _, result, attributes in rows:
        kind = getattr(ctrpipe, result)
        assigned = re.findall(r"self\.(\w+) =", inspect.getsource(kind))
        known = {*dir(kind), *getattr(kind, "__dataclass_fields__", ()), *assigned}
        assert set(re.findall(r"`(\w+)`", attributes)) <= known, result
