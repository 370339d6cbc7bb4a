"""Data for all functions: files and globs, or tables in memory, which are written so that a run finds them again."""

import atexit
import contextlib
import functools
import hashlib
import os
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from ctrpipe.common.errors import InputError, one_line

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = "data"  # below a result folder: tables that were in memory
ROWS_OF_GROUP = 1 << 17  # of a Parquet file; several row groups are read by several processes


@runtime_checkable
class Frame(Protocol):
    """A table in memory: a pandas or polars DataFrame, a pyarrow Table, or another that gives itself to Arrow."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


PathLike: TypeAlias = pathlib.Path | str
Data: TypeAlias = PathLike | Frame | Sequence[PathLike | Frame]


def files_of(data: Data | None, folder: pathlib.Path | None) -> list[str]:
    """Returns the files and globs of data; a table in memory is written into the folder first.

    A table's file is called by a hash of its values, so that the same table is the same file: what was made of it
    before is taken from the cache, and another table is another file.

    Args:
        data: A file, a glob or a folder, a table in memory, or a list of them; None for no data.
        folder: Where tables are written; None for a folder that goes with this process.

    Raises:
        InputError: the data are of another kind, or a table is empty or has values that no file holds.
    """
    if data is None:
        return []
    parts = [data] if is_frame(data) or not isinstance(data, Sequence) or isinstance(data, str) else data
    return [str(part) if isinstance(part, PathLike) else str(write_frame(part, folder or scratch())) for part in parts]


def is_frame(data: Any) -> bool:
    """Returns whether data are a table in memory."""
    return isinstance(data, Frame) or hasattr(data, "__arrow_c_array__") or _is_pandas(data)


def table_of(frame: Any) -> "pa.Table":
    """Returns a table in memory as a pyarrow Table of plain columns: categories become their values.

    The index of a pandas DataFrame is a column where it has a name, and is left out where it has none.

    Raises:
        InputError: it is no table, or a column has values of several types.
    """
    import pyarrow as pa  # 0.2 s that data in files do without here

    if not is_frame(frame):
        kind = type(frame).__name__
        raise InputError(
            f"data of type {kind}: expected a path, a pandas or polars DataFrame or a pyarrow Table; "
            "call .collect() of a LazyFrame, and make a DataFrame of anything else"
        )
    try:
        if _is_pandas(frame):
            table = pa.Table.from_pandas(_with_named_index(frame), preserve_index=False)
        elif isinstance(frame, pa.RecordBatch):
            table = pa.Table.from_batches([frame])
        elif hasattr(frame, "to_arrow"):  # polars, whose stream has types that Parquet has not
            table = frame.to_arrow()
        else:
            table = pa.table(frame)
        return pa.Table.from_arrays([_plain(column) for column in table.columns], names=table.column_names)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = one_line(error, 200)
        raise InputError(f"the DataFrame is no table of plain columns ({reason}); give each column one type") from error


def write_frame(frame: Any, folder: pathlib.Path) -> pathlib.Path:
    """Writes a table in memory as a Parquet file named by its values, unless it is there, and returns its path.

    Raises:
        InputError: as `table_of`; or the table has no rows.
    """
    import pyarrow.parquet as pq  # as in table_of

    from ctrpipe.common.files import atomic_path

    table = table_of(frame)
    if not table.num_rows:
        raise InputError("the DataFrame has no rows; was the right part of it taken?")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as unnamed:
        unfinished = pathlib.Path(unnamed) / "frame.parquet"
        pq.write_table(table.combine_chunks(), unfinished, row_group_size=ROWS_OF_GROUP)
        with open(unfinished, "rb") as file:
            path = folder / f"frame-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}.parquet"
        if not path.exists():
            with atomic_path(path) as place:
                unfinished.rename(place)
    return path


@functools.cache
def scratch() -> pathlib.Path:
    """Returns a folder for tables and results that no folder was named for; it goes with this process."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ctrpipe-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def new_folder() -> pathlib.Path:
    """Returns a new empty folder in `scratch`."""
    return pathlib.Path(tempfile.mkdtemp(dir=scratch()))


def _remove(folder: pathlib.Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a copy of the process
        shutil.rmtree(folder, ignore_errors=True)


def _is_pandas(data: Any) -> bool:
    pandas = sys.modules.get("pandas")  # who has a DataFrame has imported it
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _with_named_index(frame: Any) -> Any:
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(level=named) if named else frame


def _plain(column: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """Returns a column's values as a log has them.

    A dictionary's values stand for themselves, and half floats, which Arrow computes little with, are floats. Times are
    in nanoseconds where they fit: pandas 3 has them in microseconds, and a run reads the same text for the same time.
    """
    import pyarrow as pa  # as in table_of

    if pa.types.is_dictionary(column.type):
        return _plain(column.cast(column.type.value_type))
    if pa.types.is_timestamp(column.type):
        with contextlib.suppress(pa.ArrowInvalid):  # before 1677, after 2262
            return column.cast(pa.timestamp("ns", column.type.tz))
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


# Days ----------------------------------------------------------------------------------------------------------------


def days_of(data: Data | Mapping[str, Data], day: str | None, folder: pathlib.Path | None) -> list[str]:
    """Returns a folder for each day of a log in memory, or the globs of one in files.

    Args:
        data: Files and globs whose names are the days; a table for each day, by the day's name; or one table.
        day: Of one table, the column whose values are the days.
        folder: Where tables are written, as in `files_of`.

    Raises:
        InputError: as `files_of`; or a table comes without days.
    """
    place = folder or scratch()
    if isinstance(data, Mapping):
        return [str(_write_day(name, frame, place)) for name, frame in data.items()]
    if not is_frame(data):
        return files_of(data, place)
    table = table_of(data)
    if day is None or day not in table.column_names:
        has = ", ".join(table.column_names)
        raise InputError(f"day={day!r}: name the column whose values are the days; the DataFrame has {has}")
    return [str(_write_day(name, part, place)) for name, part in _parted(table, day)]


def _parted(table: "pa.Table", day: str) -> Iterator[tuple[str, "pa.Table"]]:
    """Yields each day's rows, in the order of the days."""
    import pyarrow as pa
    import pyarrow.compute as pc  # as in table_of

    values = table[day]
    values = values.cast(pa.date32()) if pa.types.is_temporal(values.type) else values
    names = values.cast(pa.string()).combine_chunks()
    for name in sorted(pc.unique(names).drop_null().to_pylist()):
        yield name, table.filter(pc.equal(names, name))


def _write_day(name: str, frame: Any, folder: pathlib.Path) -> pathlib.Path:
    """Writes a day's table below a folder of its own values' name, in a folder called as the day, and returns that."""
    unnamed = write_frame(frame, folder)
    place = folder / unnamed.stem / name.replace("/", "-")
    place.mkdir(parents=True, exist_ok=True)
    unnamed.replace(place / unnamed.name)
    return place
