"""Write files and folders atomically: first under a temporary name, then renamed.

An unfinished file or folder is next to its final path, as `.<name>.<...>.unfinished`. Readers do not match it: the dot
hides it from shell globs, the suffix from globs such as `*.parquet`.
"""

import contextlib
import json
import math
import os
import pathlib
import re
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ctrpipe.common.errors import InputError, NotFiniteError

SUFFIX = ".unfinished"
_DIGITS = re.compile("([0-9]+)")
_PUNCTUATION = re.compile(r"[\W_]")
# What is no file has no end, or waits for one who writes it.
_ENDLESS = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}


def by_number(path: pathlib.Path | str) -> tuple[object, ...]:
    """Returns a sort key for paths that compares numbers in names by value: day_2 comes before day_10.

    Folders are compared before the names in them.
    """
    pieces = [_DIGITS.split(part) for part in pathlib.Path(path).parts]
    names = [tuple(int(piece) if place % 2 else piece for place, piece in enumerate(part)) for part in pieces]
    return (names, str(path))


def in_pattern_order(names: Sequence[str]) -> list[str]:
    """Returns names in the order of `by_number` if they are in a shell's order of a pattern's files.

    A shell lists `day_*.csv` as day_1.csv, day_10.csv, day_2.csv, or, in other locales, as day_10.csv, day_1.csv,
    day_2.csv. Names in any other order are unchanged.
    """
    listed = list(names)
    if listed in (sorted(names), sorted(names, key=lambda name: _PUNCTUATION.sub("", name).lower())):
        return sorted(names, key=by_number)
    return listed


@contextlib.contextmanager
def atomic_path(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a temporary path to write a file to, and renames it to `path` when the block succeeds.

    Removes the file if the block fails. Every call uses a different path, so several processes may write the same file
    at once, such as Beam workers when a runner repeats a part. The last to finish wins. An existing path that is not a
    regular file, such as /dev/null, is written in place.
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
    """Yields an empty temporary folder, which replaces `path` when the block succeeds.

    If the block fails, removes the temporary folder and keeps `path` unchanged. Only one process may write a folder at
    a time: each call deletes the leftovers of a killed process, which may be large.

    Replacing a folder takes two renames. A process killed between them leaves the previous folder under another name;
    `restore_folder` restores it.
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
    """Restores the previous folder if a process was killed between the two renames of `atomic_folder`."""
    if _former(path).exists() and not path.exists():
        _former(path).rename(path)


def make_unique_folder(path: pathlib.Path) -> pathlib.Path:
    """Creates and returns a folder `<path>-<8 hex digits>`, for one attempt at work that a runner may repeat."""
    folder = path.with_name(f"{path.name}-{secrets.token_hex(4)}")
    folder.mkdir()
    return folder


@contextlib.contextmanager
def temporary_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields a folder from `make_unique_folder`, and removes it with its contents when the block ends."""
    folder = make_unique_folder(path)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def scratch_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Yields an empty folder at `path`, and removes it with its contents when the block ends.

    Only one process may use the path at a time: each call deletes the leftovers of a killed process, which may be as
    large as a log.
    """
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _former(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f".{path.name}.former")


def write_bytes(path: pathlib.Path, contents: bytes) -> None:
    """Writes a file atomically."""
    with atomic_path(path) as unfinished:
        unfinished.write_bytes(contents)


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes a UTF-8 file atomically."""
    write_bytes(path, text.encode())


def write_json(path: pathlib.Path, value: object) -> None:
    """Writes a value as indented JSON atomically: numpy scalars as numbers, other objects as str(object).

    Raises:
        NotFiniteError: a number is NaN or infinite, which JSON does not have. A figure that is not defined is None.
    """
    if figure := next(not_finite(value), ""):
        raise NotFiniteError(
            f"{path}: {figure} is not a finite number", "it is not written; see the lines above for what made it"
        )
    write_text(path, json.dumps(value, indent=1, default=_as_json) + "\n")


def not_finite(value: object, name: str = "") -> Iterator[str]:
    """Yields the names of the numbers in a value, as deep as JSON goes, that are NaN or infinite: `test.log_loss`."""
    value = _as_json(value) if getattr(value, "shape", None) == () else value
    if isinstance(value, float):
        if not math.isfinite(value):
            yield name or "the value"
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from not_finite(item, f"{name}.{key}" if name else str(key))


def check_ends(paths: Iterable[pathlib.Path], most_bytes: float = math.inf) -> None:
    """Raises an error for files that are not regular, such as pipes and devices, before TensorFlow or Python opens
    them.

    Symbolic links are followed. Missing files, folders and unreadable files pass; their reader reports them.

    Args:
        paths: The files.
        most_bytes: The maximum size of a file.

    Raises:
        InputError: a file is a named pipe, a socket or a device, or is too large.
    """
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            continue
        if what := _ENDLESS.get(stat.S_IFMT(state.st_mode)):
            raise InputError(f"{path}: {what}, which may never end; put a file in its place")
        if state.st_size > most_bytes and stat.S_ISREG(state.st_mode):
            size = f"{state.st_size:,} bytes, and {most_bytes:,} is the most"
            raise InputError(f"{path}: {size}; put the right file there")


def link_or_copy(source: pathlib.Path, target: pathlib.Path) -> None:
    """Hard-links `target` to `source`, or copies the file if linking fails. Replaces an existing target."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _as_json(item: Any) -> Any:
    # Numpy scalars are recognized by their shape, which avoids importing numpy.
    return item.item() if getattr(item, "shape", None) == () else str(item)
