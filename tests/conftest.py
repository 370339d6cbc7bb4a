"""Settings that must hold before anything imports TensorFlow, and fixtures that several folders use."""

import os

os.environ["TF_USE_LEGACY_KERAS"] = "0"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# Compiling takes longer than what is compiled: without LLVM's optimisations it takes two thirds of the time.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")
# One thread for each process of the tests: those of OpenBLAS and OpenMP spin while they wait for one another, and where
# other processes want the cores, a small product of matrices takes 16 times the CPU time, L-BFGS 50 times.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import collections
import gc
import pathlib
import signal
from collections.abc import Generator
from typing import Any

import pytest

from ctrpipe.common import code_version, foreign
from ctrpipe.common.libraries import import_tensorflow, importing_tfx
from tests import quick_beam, quick_tensorflow, warm_python
from tests.warm_processes import fork_server

pytest_plugins = [
    "tests.changed",
    "tests.quick_work",
    "tests.shared_folders",
    "tests.slowest_files",
    "tests.stores",
    "tests.temporary_folder",
    "tests.worker_memory",
]

# A shell that starts the tests in the background has them ignore Ctrl-C, and their child processes with them.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def real_data() -> pathlib.Path:
    """The folder of real logs; it is not a part of the project."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the folder of real logs (../shared/data) is not here")
    return folder


@pytest.fixture(autouse=True)
def _no_code_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forgets after a test which hooks and models it called, so those of `tests` count as others' code again."""
    monkeypatch.setattr(foreign, "_called", set())


_COLLECTED = pytest.StashKey[list[pytest.Item]]()


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Imports what the tests of a worker of pytest-xdist import sooner or later, as a run imports it.

    Without garbage collection and what TFX imports for no step of a run, collecting takes 7 s of a core where it took
    12, and a worker starts with 1,010 MB where it had 1,310, and fewer outgrow worker_memory's limit.
    """
    gc.disable()
    if hasattr(session.config, "workerinput"):
        _begin_apart(session.config, session.config.workerinput)
        import_tensorflow()
        with importing_tfx():
            import ctrpipe.pipeline.monitoring.statistics
            import ctrpipe.pipeline.run.local_runner
        import ctrpipe.pipeline.report.plots
        import ctrpipe.pipeline.report.report
        import ctrpipe.pipeline.training.handover
        import ctrpipe.serving.export.export
        import ctrpipe.serving.server.run  # noqa: F401

        code_version.imported(ctrpipe.pipeline.run.local_runner.__name__)  # reads the code that a run has hashes of
        quick_beam.remember()
        quick_tensorflow.leave_out()
        _compute_at_once()
        fork_server()
        warm_python.use_in_commands()
    try:
        return (yield)
    finally:
        gc.enable()


def _begin_apart(config: pytest.Config, worker: dict[str, Any]) -> None:
    """Has each worker of a run of all tests begin with another folder.

    In a new checkout the workers then find most files compiled by others: collecting takes three of them 40 s of a core
    in place of 47.
    """
    if [ROOT / place for place in config.args] == [ROOT / "tests"]:
        config.args = places_of(int(worker["workerid"].removeprefix("gw")), worker["workercount"])


def places_of(worker: int, workers: int) -> list[str]:
    """Returns the folders and files of all tests, from another one on for each worker."""
    tests = ROOT / "tests"
    names = sorted({file.relative_to(tests).parts[0] for file in tests.rglob("test_*.py")})
    first = worker * len(names) // workers % len(names)
    return [str(tests / name) for name in names[first:] + names[:first]]


def _compute_at_once() -> None:
    """Turns off optimisation and threads, which cost TensorFlow more than small functions and operations themselves.

    Both together are a quarter of the CPU time of a small training. Servers and what a command starts do both as ever;
    of the loader's sessions see quick_work.py.
    """
    import tensorflow as tf  # it is imported

    tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})
    tf.config.threading.set_intra_op_parallelism_threads(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps the collected tests, before markers select from them, for the test of this selection.

    Files with many slow tests come first: at the end of a run no worker is left alone with a long one.
    """
    config.stash[_COLLECTED] = list(items)
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: (-slow[item.path], item.path))  # the order of all workers, whatever they begin with


def pytest_collection_finish() -> None:
    """Excludes imported objects from garbage collection, which takes 0.4 s each time.

    Of what tests make it looks through the newest 10,000 objects at a time; 700, Python's own, took 3% of all.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session")
def collected(request) -> list[pytest.Item]:
    """All collected tests, including those that this run's markers leave out."""
    return request.config.stash[_COLLECTED]
