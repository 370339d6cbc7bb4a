"""`make test-changed`: leaves out test files that passed before and depend on nothing that has changed since.

With `--changed`, a run stores in pytest's cache which files passed, with a hash of all that they depend on
(tests/closure.py). The next such run of the same lane leaves out those with the same hash. It is for local runs:
in CI it is refused.
"""

import os
import pathlib
from collections.abc import Iterable

import pytest

from tests import closure

_NOTED = "ctrpipe/passed"  # in pytest's cache: by lane, the hash of each file that passed
_RUN = pytest.StashKey["_Run"]()
_LEFT_OUT = pytest.StashKey[frozenset[str]]()


class _Run:
    """The state of a run with --changed: each file's hash from before the tests, and the failed files."""

    def __init__(self, root: pathlib.Path, noted: dict[str, str]):
        others = closure.other_files(root)
        files = sorted((root / "tests").rglob("test_*.py"))
        self.digests = {str(file.relative_to(root)): closure.digest(file, others, root) for file in files}
        self.left_out = frozenset(name for name, found in self.digests.items() if noted.get(name) == found)
        self.ran: set[str] = set()
        self.failed: set[str] = set()

    def passed(self) -> Iterable[tuple[str, str]]:
        return ((name, self.digests[name]) for name in sorted(self.ran - self.failed) if name in self.digests)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--changed", action="store_true", help="leave out files that passed and have not changed since")


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.stash[_LEFT_OUT] = frozenset(config.workerinput.get("left_out", ()))
    elif config.getoption("--changed"):
        if os.environ.get("CI"):
            raise pytest.UsageError("--changed leaves tests out, and CI runs them all")
        run = config.stash[_RUN] = _Run(config.rootpath, config.cache.get(_NOTED, {}).get(_lane(config), {}))
        config.stash[_LEFT_OUT] = run.left_out


def _lane(config: pytest.Config) -> str:
    return str(config.getoption("markexpr"))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node) -> None:
    node.workerinput["left_out"] = sorted(node.config.stash.get(_LEFT_OUT, ()))


def pytest_ignore_collect(collection_path: pathlib.Path, config: pytest.Config) -> bool | None:
    left_out = config.stash.get(_LEFT_OUT, frozenset())
    if left_out and collection_path.is_relative_to(config.rootpath):
        return str(collection_path.relative_to(config.rootpath)) in left_out or None
    return None


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    for run in _running:
        name = report.nodeid.partition("::")[0]
        run.ran.add(name)
        if report.failed:
            run.failed.add(name)


_running: list[_Run] = []  # the run of this process


def pytest_sessionstart(session: pytest.Session) -> None:
    if _RUN in session.config.stash:
        _running.append(session.config.stash[_RUN])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Stores the files that passed; none if the run was cut short or only some tests of a file were selected."""
    config = session.config
    if _RUN not in config.stash:
        return
    run = _running.pop()
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and run.left_out:
        session.exitstatus = pytest.ExitCode.OK
    chosen = config.getoption("keyword") or config.getoption("lf", False) or any("::" in name for name in config.args)
    if chosen or exitstatus not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        return
    noted = config.cache.get(_NOTED, {})
    lane = {name: found for name, found in noted.get(_lane(config), {}).items() if name not in run.failed}
    config.cache.set(_NOTED, {**noted, _lane(config): {**lane, **dict(run.passed())}})


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    if run := config.stash.get(_RUN, None):
        count = len(run.left_out)
        terminalreporter.write_line(f"{count} of {len(run.digests)} files of tests passed before and have not changed")
