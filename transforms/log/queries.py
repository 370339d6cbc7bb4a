"""Logs from queries and tables instead of files: DuckDB and SQLAlchemy queries, Delta and Iceberg tables.

The rows are written to Parquet files and then read like any log. `duckdb:QUERY` queries files, `duckdb:FILE:QUERY` a
DuckDB database, and `sql:URL;QUERY` a SQLAlchemy database. Tables are `delta:FOLDER`, `delta:FOLDER@VERSION`,
`iceberg:METADATA.json` and `iceberg:CATALOG.NAMESPACE.TABLE`; the Iceberg forms accept an `@SNAPSHOT` suffix.
"""

import atexit
import contextlib
import functools
import hashlib
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from ctrpipe.common import stores
from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.files import atomic_folder
from ctrpipe.common.output_folder import check_output
from ctrpipe.common.printable import excerpt
from ctrpipe.common.store_names import show_as

_FORM = re.compile(r"(?P<kind>duckdb|sql|delta|iceberg):(?P<rest>.+)", re.DOTALL)
_DATABASE = re.compile(r"(?P<file>[^\s:]+):(?P<query>\s*\w.*)", re.DOTALL)
_ORDER = re.compile(r"\border\s+by\b", re.IGNORECASE)
_INNERMOST = re.compile(r"\([^()]*\)")
_BATCH_ROWS = 1 << 17
_SHOWN = 60  # characters of a query in a message


def is_query(pattern: str) -> bool:
    """Returns whether a pattern is a query or a table instead of files."""
    return _FORM.fullmatch(pattern) is not None


def has_order(pattern: str) -> bool:
    """Returns whether a log's rows have an order: not those of a table, or of a query without `order by`.

    An `order by` in parentheses orders a window or the rows of a subquery, and not the query's own rows.
    """
    match = _FORM.fullmatch(pattern)
    if match is None or match["kind"] not in ("duckdb", "sql"):
        return match is None
    query = match["rest"]
    while (outer := _INNERMOST.sub(" ", query)) != query:
        query = outer
    return _ORDER.search(query) is not None


def told_of_order(patterns: Sequence[str]) -> list[str]:
    """Returns a sentence for each query or table whose rows have no order, for a split by order."""
    return [
        f"{shown_query(pattern)}: these rows have no order, which a split by order needs; give the query an order by, "
        "or split by time or by hash"
        for pattern in patterns
        if not has_order(pattern)
    ]


def shown_query(pattern: str) -> str:
    """Returns a query or table as messages show it: without a database's URL, which may contain a password."""
    match = _FORM.fullmatch(pattern)
    if match is None:
        return pattern
    return f"{match['kind']}:{excerpt(_without_url(match['kind'], match['rest'].strip()), _SHOWN)}"


def written(patterns: Sequence[str], folder: pathlib.Path) -> list[str]:
    """Writes the rows of queries and tables to Parquet files; returns patterns of files only.

    A file's name is a hash of its values, so unchanged rows give the same files.

    Args:
        patterns: Paths, globs, queries and tables.
        folder: The folder for the files.

    Raises:
        InputError: a query fails or has no rows, its library is not installed, or the folder cannot be made.
    """
    return [str(_write(pattern, folder) / "*.parquet") if is_query(pattern) else pattern for pattern in patterns]


@functools.cache
def rows_of(pattern: str) -> str:
    """Writes the rows of a query or table to temporary files; returns their glob. They are removed when the process
    ends.

    Raises:
        InputError: see `written`.
    """
    return written([pattern], _scratch())[0]


@functools.cache
def _scratch() -> pathlib.Path:
    folder = pathlib.Path(tempfile.mkdtemp(prefix="ctrpipe-query-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(folder, ignore_errors=True) if os.getpid() == owner else None)
    return folder


def _write(pattern: str, folder: pathlib.Path) -> pathlib.Path:
    match = _FORM.fullmatch(pattern)
    assert match
    kind, rest = match["kind"], match["rest"].strip()
    shown = shown_query(pattern)
    check_output(folder)
    digest, rows = hashlib.sha256(), 0
    with tempfile.TemporaryDirectory(prefix=".query-", dir=folder) as unnamed:
        place = pathlib.Path(unnamed)
        with _errors(shown):
            # A part may have other types than the one before: a database says only of each value what it is.
            for number, batch in enumerate(_READERS[kind](shown, rest)):
                rows += batch.num_rows
                path = place / f"part-{number:05d}.parquet"
                pa.parquet.write_table(pa.Table.from_batches([batch]), path)
                with open(path, "rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        if not rows:
            raise InputError(f"{shown}: no rows; is it the right query or table?")
        final = folder / f"query-{digest.hexdigest()[:16]}"
        if not final.exists():
            with atomic_folder(final) as unfinished:
                for path in place.glob("*.parquet"):
                    path.rename(unfinished / path.name)
    show_as(folder, final.name if number else f"{final.name}/part-00000.parquet", shown)
    return final


def _without_url(kind: str, rest: str) -> str:
    """Returns a query without its database URL, which may contain a password."""
    return rest.partition(";")[2].strip() if kind == "sql" else rest


@contextlib.contextmanager
def _errors(shown: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    # Each library has errors of its own, and passes on those of its drivers.
    except Exception as error:
        raise InputError(f"{shown}: cannot be read ({one_line(error, 200)})") from error


def _of_duckdb(shown: str, rest: str) -> Iterator[pa.RecordBatch]:
    require("sql", shown)
    import duckdb  # lazy: of the extra sql

    match = _DATABASE.fullmatch(rest)
    database, query = (match["file"], match["query"]) if match else (":memory:", rest)
    if match and not pathlib.Path(database).is_file():
        raise InputError(
            f"{shown}: {database}: no such file; write duckdb:FILE:QUERY, or duckdb:QUERY for a query of files"
        )
    with duckdb.connect(database, read_only=match is not None) as connection:
        if relation := connection.sql(query):  # None for a statement that is no query
            yield from relation.to_arrow_reader(_BATCH_ROWS)


def _of_sqlalchemy(shown: str, rest: str) -> Iterator[pa.RecordBatch]:
    require("sql", shown)
    import sqlalchemy  # lazy: of the extra sql

    url, _, query = rest.partition(";")
    if not query.strip():
        raise InputError(f"{shown}: no query; write sql:URL;QUERY, as in 'sql:sqlite:///shop.db;select * from log'")
    address = sqlalchemy.make_url(url.strip())
    if address.password is not None:
        raise InputError(
            f"{shown}: the URL has a password, which a run would write down; leave it to the driver, as in ~/.pgpass"
        )
    is_sqlite = address.get_backend_name() == "sqlite"
    database = address.database or ":memory:"
    if is_sqlite and not database.startswith("file:") and not pathlib.Path(database).is_file():  # SQLite would make it
        raise InputError(f"{shown}: {database}: no such file; correct the URL")
    engine = sqlalchemy.create_engine(address)
    try:
        with engine.connect().execution_options(stream_results=True) as connection:
            if is_sqlite:  # a statement that is no query would change the file, and no commit is needed for some
                connection.exec_driver_sql("pragma query_only = on")
            result = connection.execute(sqlalchemy.text(query.strip()))
            names = list(result.keys())
            for rows in result.partitions(_BATCH_ROWS):
                columns = [pa.array(values) for values in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, names=names)
    finally:
        engine.dispose()


def _of_delta(shown: str, rest: str) -> Iterator[pa.RecordBatch]:
    require("lakes", shown)
    import deltalake  # lazy: of the extra lakes

    folder, version = _at(rest)
    table = deltalake.DeltaTable(folder, version=version)
    yield from table.to_pyarrow_dataset().to_batches(batch_size=_BATCH_ROWS)


def _of_iceberg(shown: str, rest: str) -> Iterator[pa.RecordBatch]:
    require("lakes", shown)
    name, snapshot = _at(rest)
    if name.endswith(".json"):
        from pyiceberg.table import StaticTable  # lazy: of the extra lakes

        if not stores.is_url(name) and not stores.local_path(name).is_file():
            raise InputError(f"{shown}: no such file; {_METADATA}")
        table = StaticTable.from_metadata(name)
    else:
        table = _of_catalog(shown, name)
    yield from table.scan(snapshot_id=snapshot).to_arrow_batch_reader()


_METADATA = "name the table's metadata, as in iceberg:FOLDER/metadata/00003-NAME.metadata.json"


def _of_catalog(shown: str, named: str) -> Any:
    """Returns a table of a catalog in pyiceberg's configuration.

    Raises:
        InputError: the name is a path, or the catalog is not configured.
    """
    from pyiceberg.catalog import load_catalog  # lazy: of the extra lakes

    catalog, _, name = named.partition(".")
    if "/" in named or not name or pathlib.Path(named).exists():
        newest = max(pathlib.Path(named).glob("metadata/*.metadata.json"), default=None)
        advice = f"its newest metadata are iceberg:{newest}" if newest else f"{_METADATA}, or CATALOG.NAMESPACE.TABLE"
        raise InputError(f"{shown}: neither metadata nor a table of a catalog; {advice}")
    try:
        return load_catalog(catalog).load_table(name)
    except ValueError as error:
        if "URI missing" not in str(error):
            raise
        raise InputError(
            f"{shown}: there is no catalog {catalog}; describe it in ~/.pyiceberg.yaml or by the variables "
            f"PYICEBERG_CATALOG__{catalog.upper()}__URI and __TYPE"
        ) from error


def _at(rest: str) -> tuple[str, int | None]:
    """Splits a table's name into the name and the version after an @; None without a version."""
    match = re.fullmatch(r"(.+)@(\d+)", rest)
    return (match[1], int(match[2])) if match else (rest, None)


_READERS: dict[str, Callable[[str, str], Iterator[pa.RecordBatch]]] = {
    "duckdb": _of_duckdb,
    "sql": _of_sqlalchemy,
    "delta": _of_delta,
    "iceberg": _of_iceberg,
}
