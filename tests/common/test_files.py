"""Files and folders appear whole or not at all, whatever ends the process that writes them."""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

from ctrpipe.common.errors import InputError, NotFiniteError
from ctrpipe.common.files import (
    atomic_folder,
    atomic_path,
    check_ends,
    make_unique_folder,
    restore_folder,
    scratch_folder,
    temporary_folder,
    write_bytes,
    write_json,
    write_text,
)

ROOT = pathlib.Path(__file__).parents[2]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_has_its_name_when_the_block_succeeds(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with atomic_path(path) as unfinished:
        unfinished.write_text("new")
        assert path.read_text() == "old"
        assert unfinished.name.startswith(".a.txt.") and unfinished.name.endswith(".unfinished")
    assert path.read_text() == "new" and names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_file_stays_as_it_was_when_the_block_fails(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), atomic_path(path) as unfinished:
        unfinished.write_text("new")
        raise error
    assert path.read_text() == "old" and names(tmp_path) == ["a.txt"]


def test_two_writers_of_one_file_do_not_meet(tmp_path):
    path = tmp_path / "a.txt"
    with atomic_path(path) as first:
        with atomic_path(path) as second:
            first.write_text("first")
            second.write_text("second")
        assert path.read_text() == "second"
    assert path.read_text() == "first" and names(tmp_path) == ["a.txt"]


def test_a_device_is_written_in_place(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_text(pipe, "text")
    assert os.read(reader, 10) == b"text" and pipe.is_fifo()
    os.close(reader)


def test_what_has_no_end_is_refused_before_it_is_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    os.mkfifo("pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
    pathlib.Path("zeros").symlink_to("/dev/zero")
    with open("sparse", "wb") as file:
        file.truncate(1 << 40)
    pathlib.Path("loop").symlink_to("loop")
    pathlib.Path("folder").mkdir()
    paths = {name: pathlib.Path(name) for name in ("pipe", "socket", "zeros", "sparse", "loop", "folder", "absent")}
    for name, what in {"pipe": "a named pipe", "socket": "a socket", "zeros": "a device"}.items():
        with pytest.raises(InputError, match=f"^{name}: {what}, which may never end; put a file in its place$"):
            check_ends([paths.pop(name)])
    with pytest.raises(InputError, match="^sparse: 1,099,511,627,776 bytes, and 1,000 is the most; put the right"):
        check_ends(paths.values(), 1000)
    check_ends(paths.values())  # others say what is wrong with these


def test_a_folder_in_the_way_is_an_error(tmp_path):
    (tmp_path / "a").mkdir()
    with pytest.raises(IsADirectoryError):
        write_bytes(tmp_path / "a", b"")
    assert names(tmp_path) == ["a"]


def test_texts_are_utf_8_and_numpys_numbers_are_numbers(tmp_path):
    write_text(tmp_path / "a", "é")
    assert (tmp_path / "a").read_bytes() == b"\xc3\xa9"
    values = {"a": np.float32(0.5), "b": np.int64(3), "c": np.bool_(True), "d": pathlib.Path("x"), "e": [1]}
    write_json(tmp_path / "b", values)
    assert json.loads((tmp_path / "b").read_text()) == {"a": 0.5, "b": 3, "c": True, "d": "x", "e": [1]}


def test_a_folder_takes_the_place_of_the_former_one(tmp_path):
    path = tmp_path / "a"
    for text in "12":
        with atomic_folder(path) as unfinished:
            assert names(unfinished) == []
            (unfinished / text).touch()
        assert names(path) == [text] and names(tmp_path) == ["a"]
    with pytest.raises(KeyboardInterrupt), atomic_folder(path) as unfinished:
        (unfinished / "3").touch()
        raise KeyboardInterrupt
    assert names(path) == ["2"] and names(tmp_path) == ["a"]


def test_a_folder_whose_writer_was_killed_is_restored(tmp_path):
    path = tmp_path / "a"
    with atomic_folder(path) as unfinished:
        (unfinished / "1").touch()
    # Killed within the second of the two renames.
    code = f"""
import os, pathlib
from ctrpipe.common.files import atomic_folder
rename = pathlib.Path.rename
pathlib.Path.rename = lambda source, target: os._exit(9) if source.suffix == ".unfinished" else rename(source, target)
with atomic_folder(pathlib.Path({str(path)!r})) as unfinished:
    (unfinished / "2").touch()
"""
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 9
    assert not path.exists()
    restore_folder(path)
    assert names(path) == ["1"]
    restore_folder(path)
    with atomic_folder(path) as unfinished:
        assert names(unfinished) == []  # nothing of the killed one
        (unfinished / "3").touch()
    assert names(path) == ["3"] and names(tmp_path) == ["a"]


def test_two_tries_have_folders_of_their_own(tmp_path):
    first, second = make_unique_folder(tmp_path / "a"), make_unique_folder(tmp_path / "a")
    assert first.is_dir() and second.is_dir() and first != second
    assert names(tmp_path) == sorted([first.name, second.name]) and first.name.startswith("a-")


@pytest.mark.parametrize("fails", [False, True])
def test_a_scratch_folder_is_empty_and_is_removed_whatever_happens(tmp_path, fails):
    (tmp_path / "a" / "b").mkdir(parents=True)  # of a process that was killed
    with contextlib.suppress(KeyboardInterrupt), scratch_folder(tmp_path / "a") as folder:
        assert names(folder) == []
        (folder / "c").touch()
        if fails:
            raise KeyboardInterrupt
    assert names(tmp_path) == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_temporary_folder_is_removed_whatever_happens(tmp_path, fails):
    with contextlib.suppress(KeyboardInterrupt), temporary_folder(tmp_path / "a") as folder:
        (folder / "b").touch()
        assert names(tmp_path) == [folder.name]
        if fails:
            raise KeyboardInterrupt
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ({"test": {"auc": 0.5, "log_loss": float("nan")}}, "test.log_loss"),
        ({"rows": [1.0, float("-inf")]}, "rows.1"),
        ({"a": np.float32("inf")}, "a"),
        (float("nan"), "the value"),
    ],
)
def test_json_never_holds_a_number_that_is_not_finite(tmp_path, value, name):
    path = tmp_path / "metrics.json"
    write_json(path, {"before": None})
    with pytest.raises(NotFiniteError, match=f"metrics.json: {name} is not a finite number"):
        write_json(path, value)
    assert json.loads(path.read_text()) == {"before": None} and names(tmp_path) == ["metrics.json"]
