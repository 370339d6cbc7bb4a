"""Input data of all functions: files, globs, and in-memory tables (written to Parquet first)."""

import atexit
import contextlib
import datetime
import functools
import hashlib
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_path
from ctrpipe.common.printable import excerpt
from ctrpipe.common.store_names import holder_pattern, made_in
from ctrpipe.common.stores import check_scheme, is_url

if TYPE_CHECKING:
    import pandas as pd

    from ctrpipe.pipeline.config import RunConfig

FOLDER = "data"  # subfolder of a result folder for the Parquet files of in-memory tables
# The end of the path of a table, of a day of it, or a row of it.
_SAVED = r"(?:frame-[0-9a-f]{16}/([^/]+)/)?frame-[0-9a-f]{16}\.parquet(?::(\d+))?"
ROWS_OF_GROUP = 1 << 17  # rows per Parquet row group; processes read row groups in parallel


@runtime_checkable
class Frame(Protocol):
    """An in-memory table with the Arrow C stream interface: pandas, polars, pyarrow and others."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


PathLike: TypeAlias = pathlib.Path | str
Data: TypeAlias = PathLike | Frame | Sequence[PathLike | Frame]
Logs: TypeAlias = Data | Mapping[str, Data]  # one log, or one for each of train, validation and test


def place_of(path: PathLike) -> str:
    """Returns a path without `file://`, or a store's URL, as text.

    Raises:
        InputError: a URL has an unsupported scheme or contains credentials, or is a pathlib.Path.
    """
    _check_whole(path)
    return check_scheme(str(path))


def path_or_url(path: PathLike) -> pathlib.Path | str:
    """Returns a local path, or a store's URL as text. Raises InputError, see `place_of`."""
    place = place_of(path)
    return place if is_url(place) else pathlib.Path(place)


def _check_whole(path: PathLike) -> None:
    """Raises InputError if a pathlib.Path was made of a URL, of which it keeps one slash of two."""
    scheme, colon, _ = str(path).partition(":/")
    if colon and isinstance(path, pathlib.Path) and (scheme == "file" or is_url(f"{scheme}://")):
        raise InputError(f"{path}: a pathlib.Path cannot hold a URL; give the URL as text")


def files_of(data: Data | None, folder: pathlib.Path | None) -> list[str]:
    """Returns the paths and globs of data, after writing in-memory tables to Parquet files.

    The file name contains a hash of the table's values: an unchanged table is a cache hit, a changed table is a new
    file.

    Args:
        data: A file, glob, folder or in-memory table, or a list of them. None for no data.
        folder: Folder for the Parquet files. None for a temporary folder, removed when the process ends.

    Raises:
        InputError: the data have an unsupported type or are an empty list, or a table is empty or has values that
            Parquet cannot store.
    """
    if data is None:
        return []
    parts = [data] if is_frame(data) or not isinstance(data, Sequence) or isinstance(data, str) else data
    if not parts:
        raise InputError("data: an empty list; give at least one file, or check the pattern that found none")
    for part in parts:
        if isinstance(part, PathLike):
            _check_whole(part)
    return [str(part) if isinstance(part, PathLike) else str(write_frame(part, folder or scratch())) for part in parts]


def needed_files_of(data: Data | None, folder: pathlib.Path | None) -> list[str]:
    """Returns the paths and globs of required data, as `files_of` does.

    Raises:
        InputError: see `files_of`; or the data are None.
    """
    if data is None:
        raise InputError("data: None; give a path, a DataFrame or a pyarrow Table")
    return files_of(data, folder)


def log_of(config: "RunConfig", data: Logs | None, folder: pathlib.Path | None) -> tuple["RunConfig", list[str]]:
    """Returns the configuration and the paths and globs of its log. A dict of three logs becomes a split by files.

    Args:
        config: The configuration.
        data: The log, as in `files_of`; a dict with the keys train, validation and test; or None for `data.paths`.
        folder: See `files_of`.

    Raises:
        InputError: see `files_of`; or a dict has other keys.
    """
    if not isinstance(data, Mapping):
        return config, files_of(data, folder) or config.data.paths
    if set(data) != {"train", "validation", "test"}:
        given = ", ".join(map(str, data)) or "none"
        raise InputError(f"data: a dict has the keys train, validation and test, not {given}; give the three logs")
    return config.with_files({name: files_of(part, folder) for name, part in data.items()}), []


def is_frame(data: object) -> bool:
    """Returns whether data is an in-memory table."""
    return isinstance(data, Frame) or hasattr(data, "__arrow_c_array__") or _is_pandas(data)


def index_of(data: Any) -> "pd.Index | None":
    """Returns the index of a pandas DataFrame, for its predictions; None for other data."""
    return data.index if _is_pandas(data) else None


def table_of(frame: object) -> pa.Table:
    """Converts an in-memory table to a pyarrow Table of plain columns. Categories become their values.

    Named index levels of a pandas DataFrame become columns; unnamed ones are dropped. Intervals and periods become
    text. Durations (timedelta) become numbers of seconds.

    Raises:
        InputError: the data are not a table, two columns have the same name, or a column mixes types.
    """
    if not is_frame(frame):
        kind = type(frame).__name__
        raise InputError(
            f"data of type {kind}: expected a path, a pandas or polars DataFrame or a pyarrow Table; "
            "call .collect() on a LazyFrame, and convert anything else to a DataFrame"
        )
    if _is_pandas(frame):
        frame = _plain_pandas(frame)
    try:
        if _is_pandas(frame):
            table = pa.Table.from_pandas(frame, preserve_index=False)
        elif isinstance(frame, pa.RecordBatch):
            table = pa.Table.from_batches([frame])
        elif hasattr(frame, "to_arrow"):  # polars: its stream has types that Parquet lacks
            table = frame.to_arrow()
        else:
            table = pa.table(frame)
        return pa.Table.from_arrays([_plain(column) for column in table.columns], names=table.column_names)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = one_line(error, 200)
        raise InputError(
            f"the DataFrame is not a table of plain columns ({reason}); give each column one type"
        ) from error


def write_frame(frame: object, folder: pathlib.Path) -> pathlib.Path:
    """Writes an in-memory table to a Parquet file named by a hash of its values, and returns the path.

    An existing file is kept.

    Raises:
        InputError: see `table_of`; or the table has no rows.
    """
    table = table_of(frame)
    if not table.num_rows:
        raise InputError("the DataFrame has no rows; was the right part selected?")
    folder.mkdir(parents=True, exist_ok=True)
    made_in(folder)
    with tempfile.TemporaryDirectory(prefix=".", dir=folder) as unnamed:
        unfinished = pathlib.Path(unnamed) / "frame.parquet"
        pq.write_table(table.combine_chunks(), unfinished, row_group_size=ROWS_OF_GROUP)
        with open(unfinished, "rb") as file:
            path = folder / f"frame-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}.parquet"
        if not path.exists():
            with atomic_path(path) as place:
                unfinished.rename(place)
    return path


def as_given(text: str) -> str:
    """Replaces the name of a stored table's file in a message by "the DataFrame", because the user never named it."""

    def named(match: re.Match[str]) -> str:
        day, row = match.groups()
        return f"the DataFrame{f' of {day}' if day else ''}{f', row {row} (from 1)' if row else ''}"

    return re.sub(holder_pattern() + _SAVED, named, text)


@functools.cache
def scratch() -> pathlib.Path:
    """Returns a temporary folder for data without an output folder, removed when the process ends."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ctrpipe-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def new_folder() -> pathlib.Path:
    """Returns a new, empty folder inside `scratch`."""
    return pathlib.Path(tempfile.mkdtemp(dir=scratch()))


def _remove(folder: pathlib.Path, owner: int) -> None:
    if os.getpid() == owner:  # not in a forked process
        shutil.rmtree(folder, ignore_errors=True)


def _is_pandas(data: object) -> bool:
    pandas = sys.modules.get("pandas")  # already imported if the data are a DataFrame
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _plain_pandas(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Converts named index levels to columns, and all columns to types that Arrow has.

    Raises:
        InputError: two columns have the same name, or a column has several types or a type that a log cannot have.
    """
    import pandas as pd  # lazy: imported already, as the data are a DataFrame

    named = [name for name in frame.index.names if name is not None]
    names = [*map(str, named), *map(str, frame.columns)]
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise InputError(f"the DataFrame has two columns named '{excerpt(twice)}'; rename one of them, or drop it")
    frame = frame.reset_index(level=named) if named else frame
    changed: dict[Any, pd.Series] = {}
    for name, kind in frame.dtypes.items():  # names may be numbers
        held = kind.categories.dtype if isinstance(kind, pd.CategoricalDtype) else kind
        if isinstance(held, pd.IntervalDtype | pd.PeriodDtype):
            changed[name] = frame[name].astype(object).map(str, na_action="ignore")
        elif isinstance(kind, pd.SparseDtype):
            changed[name] = frame[name].sparse.to_dense()
        elif held.kind == "O" and not isinstance(held, pd.api.extensions.ExtensionDtype):
            if (texts := _texts_of_objects(str(name), frame[name])) is not None:
                changed[name] = texts
        elif kind.kind == "c":
            column = excerpt(str(name))
            raise InputError(f"column '{column}' of the DataFrame: complex numbers; give each part a column")
    if changed:
        frame = frame.copy(deep=False)
        for name, values in changed.items():
            frame[name] = values
    return frame


def _texts_of_objects(name: str, values: "pd.Series") -> "pd.Series | None":
    """Converts integers of more than 64 bits to text, and lists of pairs to maps.

    Returns None for objects that Arrow can store.

    Raises:
        InputError: no type of Arrow can store the objects.
    """
    try:
        kind = pa.array(values, from_pandas=True).type
        if pa.types.is_date(kind) and any(isinstance(value, datetime.datetime) for value in values.dropna()):
            raise ValueError("dates and times of day")  # Arrow makes dates of both
        return None
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        if all(type(value) is int for value in values.dropna()):
            return values.map(str, na_action="ignore")
        if (maps := _maps_of_pairs(values)) is not None:
            return maps
        kinds = sorted({type(value).__name__ for value in values.dropna()})
        shown = excerpt(", ".join(kinds), 100)
        reason = f"values of several types ({shown})" if len(kinds) > 1 else f"{shown}: {one_line(error, 100)}"
        raise InputError(
            f"column '{excerpt(name)}' of the DataFrame: {reason}; give it one type, as frame[{name!r}] = "
            f"frame[{name!r}].astype('string')"
        ) from error


def _maps_of_pairs(values: "pd.Series") -> "pd.Series | None":
    """Converts lists of (key, value) pairs, pandas' form of a Parquet map, to maps. Returns None for other values."""
    import pandas as pd  # lazy: imported already, as the data are a DataFrame

    held = [value if isinstance(value, list) else None for value in values]
    pairs = [pair for value in held for pair in value or ()]
    if sum(value is not None for value in held) < values.count() or not pairs:
        return None
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        return None
    try:
        key, item = (pa.array(part, from_pandas=True).type for part in zip(*pairs, strict=True))
        maps = pa.array(held, pa.map_(key, item))
    except (pa.ArrowException, TypeError, ValueError):
        return None
    return pd.Series(pd.arrays.ArrowExtensionArray(maps), index=values.index, name=values.name)


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Converts a column to the type that it has in a log.

    Dictionary-encoded columns are decoded. Half floats become float32, because Arrow supports few operations on them.
    Timestamps become nanoseconds if they fit: pandas 3 uses microseconds, and equal times must have equal texts.
    Durations become seconds.
    """
    if pa.types.is_dictionary(column.type):
        return _plain(column.cast(column.type.value_type))
    if pa.types.is_timestamp(column.type):
        with contextlib.suppress(pa.ArrowInvalid):  # out of range: before 1677 or after 2262
            return column.cast(pa.timestamp("ns", column.type.tz))
    if pa.types.is_duration(column.type):
        from ctrpipe.transforms.log.payload import seconds_of  # lazy: takes 0.1 s, and only durations need it

        return pa.chunked_array([seconds_of(chunk) for chunk in column.chunks], pa.float64())
    return column.cast(pa.float32()) if pa.types.is_float16(column.type) else column


# Days ----------------------------------------------------------------------------------------------------------------


def days_of(data: Data | Mapping[str, Data], day: str | None, folder: pathlib.Path | None) -> list[str]:
    """Returns one folder per day of an in-memory log, or the paths and globs of a log in files.

    Args:
        data: Files and globs, one file or folder per day; a dict that maps the name of each day to a table; or one
            table.
        day: If data is one table, the column with the day.
        folder: Folder for the Parquet files, as in `files_of`.

    Raises:
        InputError: see `files_of`; or a table has no day column.
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


def _parted(table: pa.Table, day: str) -> Iterator[tuple[str, pa.Table]]:
    """Yields the name and the rows of each day, in order of the days."""
    values = table[day]
    values = values.cast(pa.date32()) if pa.types.is_temporal(values.type) else values
    names = values.cast(pa.string()).combine_chunks()
    for name in sorted(pc.unique(names).drop_null().to_pylist()):
        yield name, table.filter(pc.equal(names, name))


def _write_day(name: str, frame: object, folder: pathlib.Path) -> pathlib.Path:
    """Writes the table of one day to `<folder>/frame-<hash>/<day>/`, and returns that folder."""
    unnamed = write_frame(frame, folder)
    place = folder / unnamed.stem / name.replace("/", "-")
    place.mkdir(parents=True, exist_ok=True)
    unnamed.replace(place / unnamed.name)
    return place
