"""Prints the slowest test files at the end of a long run.

It counts the CPU seconds of a test process and of its ended children, which a busy machine changes little.
A fixture counts for the first test that uses it. `--cpu-table=FILE` writes every test's
seconds, most first.
"""

import collections
import pathlib
import resource
import time
from collections.abc import Generator, Iterable

import pytest

from tests import warm_processes

SHOWN = 15
LEAST_SECONDS = 300.0  # of all tests: a shorter run needs no saving

_last = 0.0  # the process's seconds at its last report


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-table", metavar="FILE", help="write the seconds of CPU of every test to this file")


def cpu_seconds() -> float:
    """Returns the CPU seconds of this process, of its ended children, and of the ended forks of `warm_processes`."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime + warm_processes.children_seconds()


def pytest_collection_finish() -> None:
    _since_last_report()  # the time of collecting belongs to no test


def _since_last_report() -> float:
    global _last
    before, _last = _last, cpu_seconds()
    return _last - before


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.cpu_seconds = _since_last_report()  # it travels with the report
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    if line := summary(reports):
        terminalreporter.write_line(line)
    if file := config.getoption("--cpu-table"):
        pathlib.Path(file).write_text(table(reports))


def _seconds(reports: Iterable[object]) -> Iterable[tuple[str, float]]:
    """Returns the seconds of each test, once for each of its reports; none for the report of a worker's crash."""
    for report in reports:
        if isinstance(report, pytest.TestReport):
            yield report.nodeid, getattr(report, "cpu_seconds", 0.0)


def summary(reports: Iterable[object]) -> str:
    """Returns one line: the seconds of all tests, then of the files with most; "" for a short run."""
    seconds: collections.Counter[str] = collections.Counter()
    for test, took in _seconds(reports):
        seconds[test.partition("::")[0]] += took
    if seconds.total() < LEAST_SECONDS:
        return ""
    most = ", ".join(f"{name} {took:.0f}" for name, took in seconds.most_common(SHOWN))
    return f"Tests took {seconds.total():,.0f} s of CPU, most of them in {most}"


def table(reports: Iterable[object]) -> str:
    """Returns a line for each test, its seconds and its name."""
    seconds: collections.Counter[str] = collections.Counter()
    for test, took in _seconds(reports):
        seconds[test] += took
    return "".join(f"{took:.2f}\t{test}\n" for test, took in seconds.most_common())
