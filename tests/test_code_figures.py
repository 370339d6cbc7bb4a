"""The figures of the code's structure, counted in files written here."""

import ast

import tests.code_figures as figures


def test_kinds_and_lazy_imports_are_counted_in_any_nesting():
    tree = ast.parse(
        "import os\n"
        "def f(x):\n"
        "    import json\n"
        "    if isinstance(x, Time | Text) or isinstance(x, str):\n"
        "        from os import path\n"
        "    return isinstance(x.feature, kinds.Numeric)\n"
    )
    assert len(list(figures.lazy_imports(tree))) == 2
    assert len(list(figures.checks_of_kinds(tree))) == 2


def test_every_arrow_goes_between_two_rooms():
    arrows = figures.arrows()
    assert arrows and all(here != there and lines for (here, there), lines in arrows.items())
