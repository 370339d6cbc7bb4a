"""Says at the end of a long run which files took most of it, so that it is seen where to save."""

import collections
from collections.abc import Iterable

import pytest

SHOWN = 15
LEAST_SECONDS = 300.0  # of all tests: a shorter run needs no saving


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter) -> None:
    if line := summary([report for reports in terminalreporter.stats.values() for report in reports]):
        terminalreporter.write_line(line)


def summary(reports: Iterable[object]) -> str:
    """Returns one line: the seconds of all tests, then those of the files with most; "" for a short run."""
    seconds: collections.Counter[str] = collections.Counter()
    for report in reports:
        if isinstance(report, pytest.TestReport):
            seconds[report.nodeid.partition("::")[0]] += report.duration
    if seconds.total() < LEAST_SECONDS:
        return ""
    most = ", ".join(f"{name} {took:.0f}" for name, took in seconds.most_common(SHOWN))
    return f"Tests took {seconds.total():,.0f} s, most of them in {most}"
