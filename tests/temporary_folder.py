"""Gives a run of the tests a temporary folder of its own, which goes when the run ends.

TensorFlow, Beam, TFX and multiprocessing leave files where `tempfile` points, by the thousand. Processes that a test
starts find the folder in TMPDIR, and so do the processes of pytest-xdist, which the first process starts and outlives.
A test's own folder, `tmp_path`, stays where pytest puts it, and for as long as pytest keeps it.
"""

import os
import shutil
import tempfile

import pytest

_FOLDER = pytest.StashKey[str]()


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return  # the first process has made it
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())  # where pytest makes tmp_path
    config.stash[_FOLDER] = os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="ctrpipe-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    if _FOLDER in config.stash:
        shutil.rmtree(config.stash[_FOLDER], ignore_errors=True)
