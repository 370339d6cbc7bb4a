"""A shared folder is made once by all processes, whole or not at all, and is only read."""

import multiprocessing
import pathlib
import time

import pytest

from tests.shared_folders import check_unchanged, made_once


def fill(folder: pathlib.Path) -> None:
    with (folder.parent / "count").open("a") as count:
        count.write("x")
    time.sleep(0.2)
    (folder / "file").write_text("whole")


def read(folder: pathlib.Path) -> None:
    assert (made_once(folder, fill) / "file").read_text() == "whole"


def test_processes_that_want_it_at_once_make_it_once(tmp_path):
    processes = [multiprocessing.get_context("fork").Process(target=read, args=[tmp_path / "a"]) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert (tmp_path / "count").read_text() == "x"


def test_what_is_half_made_is_made_again(tmp_path):
    def stop(folder):
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made_once(tmp_path / "a", stop)
    assert [path.name for path in made_once(tmp_path / "a", fill).iterdir()] == ["file"]


@pytest.mark.parametrize("write", [lambda folder: (folder / "file").write_text("WHOLE"), fill])
def test_a_write_is_a_failure_of_who_reads_next(tmp_path, write):
    folder = made_once(tmp_path / "a", lambda folder: (folder / "other").touch())
    check_unchanged(folder)
    write(folder)
    with pytest.raises(AssertionError, match="a test wrote to .*/a, which others read"):
        made_once(folder, fill)
