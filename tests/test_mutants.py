"""The changes that tests should notice, and the choice of the tests to run."""

import subprocess

import pytest

from tests import mutants

TEXT = '''"""Adds."""
LIMIT = 3

def add(a: int = 1, b: bool = True) -> int:
    """Returns 1 + 1."""
    print("é", a)
    if a == 2 and not b:
        return a - 1
    raise ValueError(f"{a + 1}" if a > 1 else "")
'''


def test_slips_are_of_the_lines_of_functions_and_not_of_defaults_messages_and_docstrings():
    found = mutants.mutants_of("a.py", TEXT)
    assert [(each.line, each.before, each.after) for each in found] == [
        (6, 'print("é", a)', "pass"),
        (7, "a == 2 and not b", "a == 2 or not b"),
        (7, "a == 2", "a != 2"),
        (7, "2", "3"),
        (8, "a - 1", "a + 1"),
        (8, "1", "2"),
    ]
    for each in found:
        assert each.text.splitlines()[: each.line - 1] == TEXT.splitlines()[: each.line - 1]
        assert each.after in each.text and each.text.splitlines()[each.line :] == TEXT.splitlines()[each.line :]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x < y", "x >= y"),
        ("x is None", "x is not None"),
        ("x in y", "x not in y"),
        ("x * y", "x / y"),
        ("x or y", "x and y"),
        ("x if c else y", "x if not c else y"),
        ("True", "False"),
        ("x += 1", "pass"),
    ],
)
def test_a_slip(before, after):
    first = mutants.mutants_of("a.py", f"def f(x, y, c):\n    {'' if '+=' in before else 'return '}{before}\n")[0]
    assert first.after == after


SUMS = """def add(a, b):
    return a + b


def least(a, b):
    return a if a < b else b
"""
FAR = "from tests import test_sums\n\ndef test_least():\n    assert test_sums.sums.least(1, 2) == 1\n"


@pytest.fixture
def project(tmp_path):
    files = {
        "ctrpipe/__init__.py": "",
        "ctrpipe/common/__init__.py": "",
        "ctrpipe/common/packages.py": "",
        "ctrpipe/common/sums.py": SUMS,
        "tests/__init__.py": "",
        "tests/test_sums.py": "from ctrpipe.common import sums\n\ndef test_add():\n    assert sums.add(1, 2) == 3\n",
        "tests/test_far.py": FAR,
        "tests/test_other.py": "def test_nothing():\n    pass\n",
    }
    for name, text in files.items():
        (tmp_path / "project" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / name).write_text(text)
    for command in (["init", "-q"], ["add", "-A"]):
        subprocess.run(["git", *command], cwd=tmp_path / "project", check=True)
    return tmp_path / "project"


def test_the_files_that_reach_a_line_are_asked_the_nearest_first(project):
    assert mutants.files_for("ctrpipe/common/sums.py", project) == ["tests/test_sums.py", "tests/test_far.py"]


@pytest.mark.slow
def test_a_changed_line_is_caught_by_the_test_that_guards_it_or_by_none(project, tmp_path):
    place = "ctrpipe/common/sums.py"
    add, turned, *_ = mutants.mutants_of(place, (project / place).read_text())
    checkout = mutants.Checkout(project, tmp_path / "copy", "not large")
    assert checkout.ask(add, 60) == mutants.Verdict("tests/test_sums.py::test_add", True)
    assert checkout.ask(turned, 60) == mutants.Verdict("tests/test_far.py::test_least", True)
    (tmp_path / "copy" / "tests" / "test_sums.py").write_text("from ctrpipe.common import sums\n")
    assert checkout.ask(add, 60) == mutants.Verdict("", True)
    assert (tmp_path / "copy" / place).read_text() == (project / place).read_text()


def test_lines_are_drawn_by_the_seed(project):
    one, again, other = ([str(each) for each in mutants.draw(project, seed)] for seed in (0, 0, 1))
    assert one == again and sorted(one)[0].startswith("ctrpipe/common/sums.py:2: a + b")
    assert len(one) == 2 and {line.split(":")[1] for line in other} == {"2", "6"}
