"""Gives a run of the tests its own temporary folder, which is removed when the run ends.

TensorFlow, Beam, TFX and multiprocessing leave files where `tempfile` points, by the thousand. Processes that a test
starts find the folder in TMPDIR, and so do the processes of pytest-xdist, which the first process starts and outlives.
It also holds JAX's cache of compiled code, because the processes of a run compile the same small operations.
A test's own folder, `tmp_path`, stays where pytest puts it, and for as long as pytest keeps it.
"""

import os
import pathlib
import shutil
import tempfile

import psutil
import pytest

_PREFIX = "ctrpipe-tests-"  # then the process's id
_FOLDER = pytest.StashKey[str]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # the first process has made it
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # where pytest makes tmp_path
    _remove_those_of_killed_runs(pathlib.Path(tempfile.gettempdir()))
    config.stash[_FOLDER] = folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-")
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    os.environ["JAX_COMPILATION_CACHE_DIR"] = os.path.join(folder, "jax")
    # Of any time and size: by default only what takes a second is kept.
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"


def pytest_unconfigure(config: pytest.Config) -> None:
    if _FOLDER in config.stash:
        shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)


def _remove_those_of_killed_runs(parent: pathlib.Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*-*"):
        process = folder.name.removeprefix(_PREFIX).split("-")[0]
        if process.isdigit() and not psutil.pid_exists(int(process)):
            shutil.rmtree(folder, ignore_errors=True)
