"""The line that says where a long run of the tests spent its time, and the table of all tests."""

import pytest

from tests.slowest_files import SHOWN, summary, table
from tests.test_test_processes import run

# A quarter of a second in the test, half a second in a child; a pause is no CPU.
BUSY = """
import subprocess, sys, time
WORK = "import time\\nwhile time.process_time() < {}: pass"
def test_is_busy():
    end = time.process_time() + 0.25
    while time.process_time() < end: pass
def test_has_a_busy_child():
    subprocess.run([sys.executable, "-c", WORK.format(0.5)], check=True)
def test_waits():
    time.sleep(0.5)
"""


def report(test: str, seconds: float) -> pytest.TestReport:
    made = pytest.TestReport(test, (test, 0, test), {}, "passed", None, "call", duration=0.0)
    made.cpu_seconds = seconds
    return made


def test_files_are_named_by_the_seconds_of_all_their_tests():
    line = summary([report("a.py::one", 100), report("b.py::two", 250), report("a.py::three", 200), "a warning"])
    assert line == "Tests took 550 s of CPU, most of them in a.py 300, b.py 250"


def test_of_many_files_those_with_most_are_named_and_a_short_run_says_nothing():
    many = [report(f"{number}.py::test", 100.0 + number) for number in range(SHOWN + 5)]
    line = summary(many)
    assert line.count(".py") == SHOWN and "in 19.py 119, 18.py 118" in line
    assert summary(many[:2]) == ""


def test_a_table_has_the_sum_of_each_tests_reports_with_the_most_first():
    assert table([report("a::x", 1), report("a::y", 2.5), report("a::x", 2)]) == "3.00\ta::x\n2.50\ta::y\n"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [pytest.param("0", marks=pytest.mark.large), "1"])
def test_the_seconds_are_those_of_a_test_and_of_its_children(tmp_path, processes):
    plugins = "pytest_plugins = ['tests.slowest_files']\n"
    run(tmp_path, {"conftest.py": plugins, "test_a.py": BUSY}, "-n", processes, f"--cpu-table={tmp_path}/table")
    lines = [line.split("\t") for line in (tmp_path / "table").read_text().splitlines()]
    found = {name.rpartition("::")[2]: float(seconds) for seconds, name in lines}
    assert 0.25 <= found["test_is_busy"] < 0.5 <= found["test_has_a_busy_child"] < 1
    assert found["test_waits"] < 0.25
