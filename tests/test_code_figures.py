"""The figures of the code's structure, counted in files written here."""

import ast

import pytest

import tests.code_figures as figures
from ctrpipe.common.packages import code_files
from ctrpipe.common.printable import printable
from ctrpipe.common.significance import holm
from tests import row_trip
from tests.test_architecture import ROOT, modules


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


def test_a_climb_is_a_step_up():
    assert row_trip.climbs([9, 3, 0, 3, 2, 5, 5, 6]) == 3
    assert row_trip.climbs([]) == 0


def test_a_trip_has_the_project_s_files_in_the_order_of_their_first_call():
    trip = row_trip.Trip()
    with trip.recorded():
        printable("a\x1b")
        holm([0.1, 0.2])
        printable("b")
    assert list(trip.files) == ["common/printable.py", "common/significance.py"]
    assert row_trip.floors_of(["pipeline/cli.py", "common/printable.py"])[1] == 0


def test_a_block_of_lazy_imports_has_one_reason():
    text = """
def f():
    # Lazy: takes 2 s,
    # and g does not need it.
    import a
    import b

    if True:
        import c  # lazy, see f
    import d  # takes long
    with open():
        import e
"""
    assert figures.without_reason(text) == [10, 12]


@pytest.mark.slow
def test_no_lazy_import_names_what_its_own_file_loads():
    module = "ctrpipe.transforms.features.transform"
    assert any(figures.lazy_imports(ast.parse((ROOT / modules()[module]).read_text())))
    needless = {name: [each.lineno for each in figures.needless_imports(name)] for name in modules()}
    assert {name: lines for name, lines in needless.items() if lines} == {}


def test_every_lazy_import_of_the_product_has_its_reason():
    assert {str(file): found for file in code_files(ROOT) if (found := figures.without_reason(file.read_text()))} == {}
