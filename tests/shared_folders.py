"""Expensive inputs of several test files, made once in a run of the tests for all its processes.

A test only reads it; one that writes copies it first. A folder that was written to fails the run.
"""

import fcntl
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

import pytest

SharedFolder = Callable[[str, Callable[[pathlib.Path], object]], pathlib.Path]


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFolder]:
    """shared_folder(name, make) -> the folder, which `make` fills unless a test process has done so before."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared"
    root.mkdir(exist_ok=True)
    used: set[str] = set()

    def shared(name: str, make: Callable[[pathlib.Path], object]) -> pathlib.Path:
        used.add(name)
        return made_once(root / name, make)

    yield shared
    for name in used:
        check_unchanged(root / name)


def made_once(folder: pathlib.Path, make: Callable[[pathlib.Path], object]) -> pathlib.Path:
    """Fills the folder unless it is full, while other processes wait for it. Returns the folder."""
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _note(folder).exists():
            check_unchanged(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)  # what a process left that did not come to its end
            folder.mkdir()
            make(folder)
            _note(folder).write_text(_listing(folder))
    return folder


def check_unchanged(folder: pathlib.Path) -> None:
    assert _listing(folder) == _note(folder).read_text(), f"a test wrote to {folder}, which others read: copy it first"


def _note(folder: pathlib.Path) -> pathlib.Path:
    """Records the contents of a complete folder."""
    return folder.with_name(f"{folder.name}.made")


def _listing(folder: pathlib.Path) -> str:
    files = sorted((path, path.stat()) for path in folder.rglob("*") if path.is_file())
    return "\n".join(f"{path.relative_to(folder)} {found.st_size} {found.st_mtime_ns}" for path, found in files)
