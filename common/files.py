"""Writes files and folders that appear whole or not at all: under another name first, then renamed.

An unfinished file or folder lies beside its final path as `.<name>.<...>.unfinished`. The dot keeps it out of shell
patterns, the suffix out of patterns such as `*.parquet`, so that no reader takes it.
"""

import contextlib
import json
import os
import pathlib
import secrets
import shutil
from collections.abc import Iterator
from typing import Any

SUFFIX = ".unfinished"


@contextlib.contextmanager
def atomic_path(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a path beside `path` to write a file to; it becomes `path` when the block succeeds.

    It is removed when the block fails. Each call has a path of its own, so that several processes may write the same
    file at once, as Beam's workers do when a runner repeats a part; the last one to finish wins. A path that exists and
    is not a regular file, such as /dev/null, is written in place.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}{SUFFIX}")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def atomic_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields an empty folder beside `path` to fill; it takes the place of `path` when the block succeeds.

    It is removed when the block fails, and `path` stays as it was. Only one process may write a folder at a time: what
    a killed process left behind is deleted by the next call, because it may be large.

    Replacing a folder takes two renames. A process that is killed between them leaves the former folder under another
    name; `restore_folder` brings it back.
    """
    unfinished, former = path.with_name(f".{path.name}{SUFFIX}"), _former(path)
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        yield unfinished
        if path.exists():
            shutil.rmtree(former, ignore_errors=True)
            path.rename(former)
        unfinished.rename(path)
    except BaseException:
        restore_folder(path)
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    shutil.rmtree(former, ignore_errors=True)


def restore_folder(path: pathlib.Path) -> None:
    """Brings back the former folder that a process killed within `atomic_folder` left, if there is one."""
    if _former(path).exists() and not path.exists():
        _former(path).rename(path)


def make_unique_folder(path: pathlib.Path) -> pathlib.Path:
    """Makes and returns a folder `<path>-<8 digits>`, for one attempt at work that a runner may repeat."""
    folder = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    folder.mkdir()
    return folder


@contextlib.contextmanager
def temporary_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder of `make_unique_folder`, which is removed with its contents when the block ends."""
    folder = make_unique_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _former(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.former")


def write_bytes(path: pathlib.Path, contents: bytes) -> None:
    """Writes a file, whole or not at all."""
    with atomic_path(path) as unfinished:
        unfinished.write_bytes(contents)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a UTF-8 file, whole or not at all."""
    write_bytes(path, text.encode())


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes a value as indented JSON, whole or not at all: numpy scalars as numbers, other objects as str(object)."""
    write_text(path, json.dumps(value, indent=1, default=_as_json) + "\n")


def link_or_copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Gives a file a second name, in place of what has that name, or copies it where the file system has no links."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _as_json(item: Any) -> Any:
    # Numpy scalars are recognised by their shape, so that commands without numpy do not wait for its import.
    return item.item() if getattr(item, "shape", None) == () else str(item)
