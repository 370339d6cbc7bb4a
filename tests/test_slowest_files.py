"""The line that says where a long run of the tests spent its time."""

import pytest

from tests.slowest_files import SHOWN, summary


def report(test: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(test, (test, 0, test), {}, "passed", None, "call", duration=seconds)


def test_files_are_named_by_the_seconds_of_all_their_tests():
    line = summary([report("a.py::one", 100), report("b.py::two", 250), report("a.py::three", 200), "a warning"])
    assert line == "Tests took 550 s, most of them in a.py 300, b.py 250"


def test_of_many_files_those_with_most_are_named_and_a_short_run_says_nothing():
    many = [report(f"{number}.py::test", 100.0 + number) for number in range(SHOWN + 5)]
    line = summary(many)
    assert line.count(".py") == SHOWN and "in 19.py 119, 18.py 118" in line
    assert summary(many[:2]) == ""
