"""Keeps test processes small: one that has grown is replaced, and one above the bound fails the run.

A process keeps what XLA compiled until it ends, and one worker of pytest-xdist runs hundreds of tests. A new process
takes 15 s of a core, so a machine with more memory replaces fewer.
"""

import ctypes
import gc
import resource
import sys
from collections.abc import Generator, Iterator

import psutil
import pytest
from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

from ctrpipe.common.processes import cores

LEAST_MB = 3584  # what a process may take on every machine
FILE_MB = 980  # what a file adds at most; a worker starts at 1,010
LARGE_FILE_MB = 1800  # with its large cases, such as models of 12 layers of 768
OTHERS_MB = 6000  # what the servers and runs that tests start take together
WORTH_GIVING_BACK_MB = 32
# What a process grows by before it looks for garbage, which takes up to 0.3 s. TensorFlow keeps the memory of tensors
# for the next ones and never returns it: models that wait for the garbage collector make that pool larger for good.
GROWTH_MB = 200

_PEAKS = pytest.StashKey[list[int]]()
_KEPT = pytest.StashKey[int]()  # what the process had when it last looked for garbage


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Returns one process more than there are cores, if memory suffices: tests wait for servers and deadlines."""
    return worth_starting(cores(), psutil.virtual_memory().available // 2**20)


def worth_starting(processors: int, available_mb: int) -> int:
    return max(1, min(processors + 1, available_mb // LEAST_MB))


def bound_mb(workers: int, available_mb: int) -> int:
    """Returns the memory bound of a process: its share of the memory that servers and runs leave."""
    return max(LEAST_MB, (available_mb - OTHERS_MB) // workers)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--worker-memory", type=int, metavar="MB", help="a test process that takes more ends its run failed"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sets the bound of all processes; pytest-xdist hands the options on to its workers."""
    if config.option.worker_memory is None:
        workers = len(getattr(config.option, "tx", None) or [None])
        config.option.worker_memory = bound_mb(workers, psutil.virtual_memory().available // 2**20)


def replaced_above_mb(config: pytest.Config) -> int:
    is_small = "not large" in config.option.markexpr
    return config.option.worker_memory - (FILE_MB if is_small else LARGE_FILE_MB)


class ShortLivedWorkers(LoadFileScheduling):
    """Distributes tests file by file, as `--dist loadfile` does, and ends a worker that has grown."""

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # it has just started
        if self.workqueue and not node.shutting_down and getattr(node, "memory_mb", 0) > replaced_above_mb(self.config):
            node.shutdown()  # when it is through with what it was given
            return
        super()._reschedule(node)
        # A worker runs a test only once it knows the next one, and a file may have no second.
        while not node.shutting_down and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Gives a worker's remaining tests to the others, except the test that crashed it, which pytest-xdist repeats.

        Returns that test; None if the worker had ended all its tests.
        """
        work = self.assigned_work.pop(node)
        crashed = next((test for tests in work.values() for test, ended in tests.items() if not ended), None)
        for name, tests in work.items():
            if crashed in tests:
                tests[crashed] = True
            if not all(tests.values()):
                self.workqueue[name] = tests
        if crashed:
            for other in self.assigned_work:
                self._reschedule(other)
        return crashed


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        if memory_mb() > min(replaced_above_mb(item.config), item.config.stash.get(_KEPT, 0) + GROWTH_MB):
            give_memory_back()  # what only waits for the garbage collector is no reason to replace a process
            item.config.stash[_KEPT] = memory_mb()
        report.memory_mb = memory_mb()  # it travels with the report
    return report


def memory_mb() -> int:
    return psutil.Process().memory_info().rss // 2**20


def give_memory_back() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(scope="module", autouse=True)
def _compiled_given_back() -> Iterator[None]:
    """Frees the code that a file's tests compiled, as far as possible.

    Most files compile nothing, and looking for garbage takes up to 0.3 s.
    """
    before = memory_mb()
    yield
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session(free_memory=False)  # names begin anew in the next file
    if memory_mb() - before < WORTH_GIVING_BACK_MB:
        return
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    give_memory_back()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if hasattr(report, "node") and hasattr(report, "memory_mb"):  # the report of a worker's crash is made outside it
        report.node.memory_mb = report.memory_mb


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log) -> LoadFileScheduling | None:
    return ShortLivedWorkers(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: WorkerController, error: object) -> None:
    """Records a worker's peak, ends its process, and starts another one if work is left."""
    if error:
        return
    node.ensure_teardown()  # pytest-xdist itself would keep the process, and its memory, to the end of the run
    node.config.stash.setdefault(_PEAKS, []).append(node.workeroutput["peak_mb"])
    session = node.config.pluginmanager.getplugin("dsession")
    interrupted = node.workeroutput["exitstatus"] == pytest.ExitCode.INTERRUPTED or session.shouldstop
    is_ours = isinstance(session.sched, ShortLivedWorkers)  # others hand out tests in ways of their own
    if is_ours and session.sched.workqueue and not session.shuttingdown and not interrupted:
        session._clone_node(node)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    elif max(session.config.stash.get(_PEAKS, [0])) > session.config.option.worker_memory or files_left(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def files_left(config: pytest.Config) -> int:
    """Returns the files that no process has run: pytest-xdist ends silently if no worker can be started again."""
    session = config.pluginmanager.getplugin("dsession")
    if session is None or session.shouldstop or not isinstance(session.sched, ShortLivedWorkers):
        return 0
    return len(session.sched.workqueue)


def pytest_terminal_summary(terminalreporter, config: pytest.Config) -> None:
    peaks = config.stash.get(_PEAKS, [])
    if peaks:
        bound = config.option.worker_memory
        said = f"{len(peaks)} test processes, of at most {max(peaks):,} MB"
        terminalreporter.write_line(said if max(peaks) <= bound else f"FAILED {said}: above {bound:,} MB")
    if left := files_left(config):
        terminalreporter.write_line(f"FAILED: {left} files were not run, because their processes did not start")
