"""Finds, opens, measures and cuts the files of logs. No other module depends on where they are stored."""

import bz2
import contextlib
import dataclasses
import glob
import gzip
import itertools
import os
import pathlib
import urllib.parse
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, NamedTuple, cast

import numpy as np
import pyarrow as pa

from ctrpipe.common import stores
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import by_number
from ctrpipe.common.printable import excerpt
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.first_bytes import HEAD_BYTES, compression_of, is_utf8_codec
from ctrpipe.transforms.log.held_objects import check_held, held_object
from ctrpipe.transforms.log.lines import CHUNK_BYTES, end_of_rows, whole_lines
from ctrpipe.transforms.log.queries import is_query, rows_of
from ctrpipe.transforms.log.recoded import recoded

RANGE_BYTES = 32 << 20
_END_BYTES = 1 << 12  # of a file that are looked at for empty lines at its end
_TEXT_FACTOR = 4  # approximate bytes of text per compressed byte
_COUNT_SECONDS = 5e-10  # time per byte to count lines
_DELTA_LOG = "_delta_log"  # the folder of a Delta table that says which of its files count
_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"


# Find ----------------------------------------------------------------------------------------------------------------


def find_files(patterns: list[str]) -> list[str]:
    """Returns the files of paths, globs, folders, queries and tables (see `queries`), local or in an object store.

    The files of one pattern are in the order of `by_number`.

    Raises:
        InputError: a file is missing, a glob matches nothing, there are no patterns, or see `files_of_folder`.
    """
    if not patterns:
        raise InputError("No data: give --data PATH, or data.paths in the configuration")
    files: list[str] = []
    for given in patterns:
        if is_query(given):
            files += matching(rows_of(given))
            continue
        pattern = stores.check_scheme(given)
        if is_file(pattern):  # a name may contain [ or ?
            files.append(pattern)
            continue
        is_glob = glob.has_magic(pattern)
        _check_no_table(pattern)
        if not (is_glob and stores.is_url(pattern)) and is_folder(pattern):
            files += files_of_folder(pattern)
            continue
        listed = _matching(pattern)
        matches = [name for name, is_one in listed if is_one]
        if not matches:
            if stores.is_url(pattern):
                stores.check_bucket(pattern)
            if os.path.islink(pattern) and not os.path.exists(pattern):
                target = excerpt(os.readlink(pattern))
                raise InputError(f"{pattern}: no such file; it is a link to {target}, which does not exist")
            if os.path.exists(pattern):
                raise InputError(
                    f"{pattern}: not a regular file but a pipe or a device, and a log is read several times; write its "
                    "rows to a file first, which may be compressed"
                )
            if listed:
                folder, inside = excerpt(listed[0][0].rstrip("/")), f"{pattern.rstrip('/')}/*"
                raise InputError(
                    f"{pattern}: matches only folders, such as {folder}; name their files, as in '{inside}'"
                )
            raise InputError(f"{pattern}: {'no file matches' if is_glob else 'no such file'}; check the path")
        files += matches
    return files


def _check_no_table(pattern: str) -> None:
    """Raises InputError if the pattern's folder is a Delta table, because its files include removed rows."""
    parts = pattern.rstrip("/").split("/")
    plain = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts))
    folder = "/".join(plain)
    if folder and is_folder(f"{folder}/{_DELTA_LOG}"):
        raise InputError(f"{folder}: a Delta table, whose files also contain removed rows; write delta:{folder}")


def is_file(path: str) -> bool:
    """Returns whether a path is a file."""
    return stores.is_file(path) if stores.is_url(path) else pathlib.Path(path).is_file()


def is_folder(path: str) -> bool:
    """Returns whether a path is a folder."""
    return stores.is_folder(path) if stores.is_url(path) else pathlib.Path(path).is_dir()


def matching(pattern: str) -> list[str]:
    """Returns the files and folders that match a glob, in the order of `by_number`.

    Names that begin with "_", such as Spark's _SUCCESS, are omitted unless the last part of the glob begins with "_".
    """
    return [name for name, _ in _matching(pattern)]


def _matching(pattern: str) -> list[tuple[str, bool]]:
    """Returns the names of `matching`, each with whether it is a file, which a store's listing states."""
    if stores.is_url(pattern):
        names = stores.listed(pattern)
    else:
        paths = sorted(set(glob.glob(pattern, recursive=True)), key=by_number)
        names = [(name, pathlib.Path(name).is_file()) for name in paths]
    if pattern.rpartition("/")[2].startswith("_"):
        return names
    return [(name, is_one) for name, is_one in names if not name.rstrip("/").rpartition("/")[2].startswith("_")]


def files_below(folder: str, pattern: str = "**/*") -> list[str]:
    """Returns the files in a folder that match a glob, in the order of `by_number`.

    Omits files with a name or a subfolder that begins with "." or "_", such as Spark's _temporary.
    """
    if stores.is_url(folder):
        return stores.files_below(folder, pattern) if stores.is_folder(folder) else []
    root = pathlib.Path(folder)
    files = [path for path in root.glob(pattern) if path.is_file()]
    kept = (str(path) for path in files if not stores.is_hidden(path.relative_to(root).parts))
    return sorted(kept, key=by_number)


def files_of_folder(folder: str) -> list[str]:
    """Returns the files of a folder, or of its subfolders such as day=2026-11-01, in the order of `by_number`.

    Omits names that begin with "." or "_".

    Raises:
        InputError: the folder has no files, or has both files and subfolders.
    """
    files, folders = _inside(folder)
    name = excerpt(folder.rstrip("/"))
    keyed = [each for each in folders if "=" in stores.name_of(each)]
    others = [*files, *(each for each in folders if each not in keyed)]
    if keyed and others:
        other, partition = (excerpt(stores.name_of(each[0])) for each in (others, keyed))
        raise InputError(f"{name}: a folder with {other} beside {partition}; name its files, as in '{name}/*=*/*'")
    if folders and not keyed:
        inner = excerpt(stores.name_of(folders[0]))
        raise InputError(f"{name}: a folder with the folder {inner} in it; name its files, as in '{name}/**/*'")
    chosen = files_below(folder, "*=*/**/*") if keyed else files
    if not chosen:
        raise InputError(f"{name}: a folder without files; name the files of the log, as in 'logs/*'")
    return chosen


def _inside(folder: str) -> tuple[list[str], list[str]]:
    """Returns the paths of the files and of the folders in a folder, without hidden ones."""
    if stores.is_url(folder):
        listed = [(url, size is None) for url, size in stores.objects_below(folder, recursive=False)]
    else:
        listed = [(str(path), path.is_dir()) for path in pathlib.Path(folder).iterdir()]
    listed.sort(key=lambda each: by_number(each[0]))
    shown = [(path, is_dir) for path, is_dir in listed if not stores.is_hidden([stores.name_of(path)])]
    return [path for path, is_dir in shown if not is_dir], [path for path, is_dir in shown if is_dir]


def partition_values(path: str) -> dict[str, bytes | None]:
    """Returns the column values in a file's folder names, in Hive's form: `day=2026-11-01`, with %2F for a slash."""
    pairs = (part.partition("=") for part in pathlib.Path(path).parts[:-1] if "=" in part)
    return {name: None if text == _HIVE_NULL else urllib.parse.unquote_to_bytes(text) for name, _, text in pairs}


# Stat ----------------------------------------------------------------------------------------------------------------


class FileState(NamedTuple):
    """Identifies the version of a file without reading it. As JSON it is a list.

    A write that keeps the size and the modification time is not detected, such as a write through a memory map that the
    kernel has not recorded yet. The inode is not included, because some network mounts renumber files between machines
    or over time.

    Attributes:
        size: The size in bytes, as stored.
        stamp: The modification time in ns; the generation or ETag of an object in a store.
    """

    size: int
    stamp: str


def state_of(path: str) -> FileState:
    """Returns a file's state.

    Raises:
        OSError: the file cannot be read.
    """
    if stores.is_url(path):
        held = held_object(path)
        return FileState(held.seen.size, held.seen.tag) if held else FileState(*stores.state_of(path))
    status = os.stat(path)
    return FileState(status.st_size, str(status.st_mtime_ns))


@contextlib.contextmanager
def unchanged(path: str, state: FileState) -> Iterator[None]:
    """Checks at the start and at the end of the block that a file still has the given state.

    Raises:
        InputError: the file has changed. It replaces an InputError of the block, which may be a consequence.
    """
    _check_unchanged(path, state)
    try:
        yield
    except InputError as error:
        _check_unchanged(path, state, error)
        raise
    _check_unchanged(path, state)


def _check_unchanged(path: str, state: FileState, cause: InputError | None = None) -> None:
    with input_errors(path):
        now = state_of(path)
    if now != state:
        raise changed(path) from cause


def check_states(ranges: Sequence["Range"], states: Mapping[str, FileState]) -> None:
    """Checks that the files cut into ranges by `plan` still have the given states.

    Args:
        ranges: The ranges.
        states: The earlier states by path. A file without one is not checked.

    Raises:
        InputError: a file has changed.
    """
    for part in ranges:
        if states.get(part.path, part.state) != part.state:
            raise changed(part.path)


def check_still(files: Sequence[str]) -> None:
    """Checks that objects read from copies (`held_objects`) are unchanged in the store.

    Raises:
        InputError: an object has changed, or the store does not answer.
    """
    if differing := check_held(files):
        raise changed(differing[0])


def changed(path: str) -> InputError:
    """Returns the error for a file that changed while it was read."""
    return InputError(f"{path}: the file changed while it was read; stop the program that writes to it, and run again")


def size_of(path: str) -> int:
    """Returns a file's stored size in bytes.

    Raises:
        OSError: the file cannot be read.
    """
    return state_of(path).size


def text_size(path: str) -> int:
    """Returns the number of bytes of text in a file, approximately if it is compressed.

    Raises:
        OSError: the file cannot be read.
    """
    return size_of(path) * (_TEXT_FACTOR if is_compressed(path) else 1)


# Open ----------------------------------------------------------------------------------------------------------------


def _gunzipped(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=file))


def _unbzipped(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], bz2.BZ2File(file))


def _unzstd(file: IO[bytes]) -> IO[bytes]:
    return cast(IO[bytes], pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd"))


# All three formats may consist of several compressed pieces (members, streams, frames).
_DECOMPRESSED: dict[str, Callable[[IO[bytes]], IO[bytes]]] = {"gzip": _gunzipped, "bz2": _unbzipped, "zstd": _unzstd}


def stored_head(path: str) -> bytes:
    """Returns the first stored bytes of a file.

    Raises:
        OSError: the file cannot be read.
    """
    with open_stored(path) as file:
        return file.read(HEAD_BYTES)


def is_compressed(path: str) -> bool:
    """Returns whether a text file is compressed, by its first bytes.

    Raises:
        OSError: the file cannot be read.
    """
    return compression_of(stored_head(path)) is not None


def open_stored(path: str, start: int | None = None, stop: int | None = None) -> IO[bytes]:
    """Opens a file's stored bytes as a seekable file.

    Args:
        path: The file.
        start: The position at which a mostly sequential read begins; None if unknown.
        stop: The position at which it ends; None for the end of the file.

    Raises:
        OSError: the file cannot be read.
    """
    if not stores.is_url(path):
        return open(path, "rb")
    held = held_object(path)
    return open(held.path, "rb") if held else stores.open_read(path, start, stop)


@contextlib.contextmanager
def open_text(path: str, start: int = 0, encoding: str = "utf-8", stop: int | None = None) -> Iterator[IO[bytes]]:
    """Opens a text file as UTF-8, decompressed if its first bytes say so. The text is read in order, without seeking.

    Args:
        path: The file.
        start: Position of the first byte to read; 0 for a file that is compressed or has another encoding.
        encoding: The encoding of the text (`data.encoding`). UTF-8 is not decoded: it may contain invalid bytes.
        stop: Position after the last byte to read; None if unknown.

    Raises:
        OSError: the file cannot be read.
    """
    with contextlib.ExitStack() as stack:
        stored = stack.enter_context(open_stored(path, None if stop is None else start, stop))
        compression = compression_of(stored.read(HEAD_BYTES))
        stored.seek(start)
        text = stack.enter_context(_DECOMPRESSED[compression](stored)) if compression else stored
        yield text if is_utf8_codec(encoding) else recoded(text, encoding)


def first_bytes(path: str, size: int, encoding: str = "utf-8") -> bytes:
    """Returns the first bytes of a text file as UTF-8, decompressed if necessary.

    Raises:
        InputError: the file cannot be read.
    """
    with input_errors(path), open_text(path, encoding=encoding) as file:
        return file.read(size)


@contextlib.contextmanager
def input_errors(path: str) -> Iterator[None]:
    """Converts errors of reading a file, or of decompressing its text, to InputError."""
    try:
        yield
    except EOFError as error:
        name = _compression(path)
        raise InputError(f"{path}: the {name} file is cut short; copy or write it again") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: not a valid gzip file ({one_line(error, 200)})") from error
    except OSError as error:
        if error.errno is None and (name := _compression(path)) in ("bz2", "zstd"):
            text = one_line(error, 200)
            raise InputError(f"{path}: not a whole {name} file ({text}); copy or write it again") from error
        raise unreadable(path, error) from error


def unreadable(path: str, error: OSError) -> InputError:
    """Returns the InputError for a log file that the system cannot read."""
    reason = error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return InputError(
            f"{path}: cannot be read ({reason}); check the path, and keep the log's files in place until the end"
        )
    if isinstance(error, PermissionError):
        return InputError(f"{path}: cannot be read ({reason}); give the user of this command permission to read it")
    return InputError(f"{path}: cannot be read ({reason}); copy the file to another disk, or write it again")


def _compression(path: str) -> str:
    """Returns the name of a file's compression, for a message; "" if there is none."""
    try:
        return compression_of(stored_head(path)) or ""
    except OSError:
        return ""


def no_rows(path: str) -> InputError:
    """Returns the error for a file without rows."""
    return InputError(f"{path}: the file has no rows; check that it was written completely")


# Cut into ranges -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Range:
    """A part of a file that can be read independently: whole lines, or whole row groups of Parquet.

    Attributes:
        path: The file.
        columns: The file's columns, in order.
        start: Position of the first byte, after any header; for Parquet, index of the first row group.
        length: Number of bytes or row groups; None: up to the end of the file.
        line: Number of the first line in the file, from 1, a header included; for Parquet, of the first row. 0 if the
            lines before it are not counted yet (see `number_lines`).
        size: Approximate number of bytes of text or Parquet.
        state: The state of the file when it was cut.
        empty_end: Number of bytes of the empty lines at the end of a text file. They are included in `length`.
    """

    path: str
    columns: tuple[str, ...]
    start: int
    length: int | None
    line: int
    size: int
    state: FileState
    empty_end: int = 0


@dataclasses.dataclass(frozen=True)
class NumberedRange:
    """A range, with its index in the log and the index of its file, both from 0."""

    number: int
    file: int
    part: Range


def numbered(ranges: Sequence[Range], files: Sequence[str]) -> list[NumberedRange]:
    """Returns the ranges of a log's files, numbered in order."""
    return [NumberedRange(number, files.index(part.path), part) for number, part in enumerate(ranges)]


def cut_lines(whole: Range) -> Iterator[Range]:
    """Cuts the range of an uncompressed text file into ranges of whole lines, about RANGE_BYTES each.

    Only the first range has the number of its line.

    Raises:
        InputError: the file cannot be read.
    """
    stop = whole.start + (whole.length or 0) - whole.empty_end
    with input_errors(whole.path), open_stored(whole.path) as file:
        start, line = whole.start, whole.line
        while start < stop:
            file.seek(start + RANGE_BYTES - 1)
            end = min(_end_of_line(file), stop)
            length = end - start
            rest = whole.empty_end if end == stop else 0
            yield Range(whole.path, whole.columns, start, length + rest, line, length, whole.state, rest)
            start, line = end, 0


def empty_end(path: str, start: int, stop: int) -> int:
    """Returns the number of bytes of the empty lines at the end of an uncompressed text file, from `start` to `stop`.

    If all lines are empty, this is the number of all bytes.

    Raises:
        OSError: the file cannot be read.
    """
    size = _END_BYTES
    with open_stored(path) as file:
        while True:
            first = max(start, stop - size)
            file.seek(first)
            block = file.read(stop - first)
            kept = end_of_rows(block)
            if kept or first == start:
                return len(block) - kept
            size *= 2


def _end_of_line(file: IO[bytes]) -> int:
    """Returns the position after the next line break, or the end of the file if there is none."""
    while block := file.read(CHUNK_BYTES):
        if end := block.find(b"\n") + 1:
            return file.tell() - len(block) + end
    return file.tell()


def group(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Groups adjacent pieces of a file, given their bytes, up to RANGE_BYTES or a little more.

    Yields the index of each group's first piece and of the piece after its last.
    """
    first = size = 0
    for index, piece in enumerate(sizes):
        size += piece
        if size >= RANGE_BYTES or index + 1 == len(sizes):
            yield first, index + 1
            first, size = index + 1, 0


def number_lines(files: Sequence[Sequence[Range]], workers: Workers) -> list[Range]:
    """Counts lines where ranges lack their first line's number.

    Args:
        files: The ranges of each file, in order.
        workers: Count the lines.

    Returns:
        The ranges of all files, in order, each with the number of its first line.
    """
    uncounted = [part for parts in files if not parts[-1].line for part in parts[:-1]]
    seconds = _COUNT_SECONDS * sum(part.size for part in uncounted)
    counts = iter(workers.map(_count_lines, uncounted, seconds) if uncounted else [])
    ranges: list[Range] = []
    for parts in files:
        line = parts[0].line
        for part in parts:
            ranges.append(dataclasses.replace(part, line=part.line or line))
            line += next(counts) if not parts[-1].line and part is not parts[-1] else 0
    return ranges


def _count_lines(part: Range) -> int:
    stop = None if part.length is None else part.start + part.length
    with input_errors(part.path), open_text(part.path, part.start, stop=stop) as file:
        chunks = whole_lines(file, part.length)
        return sum(int(np.count_nonzero(np.frombuffer(chunk, np.uint8) == ord("\n"))) for chunk in chunks)
