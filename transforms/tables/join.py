"""Joins a log with side tables by key, or by key and time. DuckDB handles tables and logs larger than memory."""

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.files import atomic_folder, scratch_folder, write_json
from ctrpipe.common.machine_memory import memory_limit
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.printable import excerpt
from ctrpipe.common.processes import cores
from ctrpipe.transforms.labels.labelled import DEAD_LETTER, LOG, REJECTS, SUMMARY, Letters, TextFiles, rejects_beside
from ctrpipe.transforms.labels.moments import with_moments
from ctrpipe.transforms.log.batches import LogBatch
from ctrpipe.transforms.log.payload import PayloadWriter
from ctrpipe.transforms.log.side_tables import Join, SideTable
from ctrpipe.transforms.log.zones import Zones, zones_told
from ctrpipe.transforms.tables.sides import check_has, text_files

SCRATCH = ".join"
_BATCH_ROWS = 1 << 16
_MEMORY_SHARE = 0.4  # of what this process may take, for DuckDB; it writes more to disk
_FEWEST_BYTES = 1 << 28

# Names inside DuckDB are numbers: its own names ignore the case, and those of a log may be anything.
_NUMBER, _MOMENT, _LINE, _FILE = "number", "moment", "line", "file"


@dataclasses.dataclass(frozen=True)
class Joined:
    """The result of a join.

    Attributes:
        log: A glob of the joined Parquet files.
        columns: The columns that come from the tables.
        rows: Number of rows written: all well-formed rows of the log.
        unmatched: The number of rows without a match in each table, by the table's first file.
        rejected: Number of malformed rows in all inputs.
        told: Further remarks on the join, as lines of text.
    """

    log: str
    columns: tuple[str, ...]
    rows: int
    unmatched: dict[str, int]
    rejected: int
    told: tuple[str, ...] = ()


def join_tables(log: Sequence[str], join: Join, output: pathlib.Path, most_rows: int | None = None) -> Joined:
    """Writes the log with the columns of its side tables. All columns are text, and the order is the log's.

    Args:
        log: The log's files and globs.
        join: The tables and their keys.
        output: The folder for `log/*.parquet`, `dead_letter/rejects.jsonl` and `summary.json`.
        most_rows: Read about this many rows of the log; None: all.

    Raises:
        InputError: a file cannot be read; a column is missing, or in the log already; a key has two rows; or no row of
            the log has a match.
    """
    require("sql", "a join of tables")
    rows = text_files(log, join.columns, list(dict.fromkeys(key for table in join.tables for key in table.on)))
    sides = [_Side(place, table, rows) for place, table in enumerate(join.tables)]
    if join.as_of is not None:
        check_has(rows, "as_of", [join.as_of])
    names = [*rows.names, *(new for side in sides for new in side.brought.values())]
    for side in sides:
        if twice := sorted(new for new in side.brought.values() if names.count(new) > 1):
            raise InputError(
                f"{side.files.files[0]}: {', '.join(twice)} would be in the joined log twice; give the table a prefix, "
                "or keep other columns"
            )
    check_output(output)
    with one_run_at_a_time(output), atomic_folder(output / LOG) as unfinished:
        (output / DEAD_LETTER).mkdir(exist_ok=True)
        schema = pa.schema([(name, pa.binary()) for name in names])
        with (
            open(output / DEAD_LETTER / REJECTS, "w") as file,
            scratch_folder(output / SCRATCH) as scratch,
            _Database(scratch) as database,
            PayloadWriter(unfinished, "part", schema) as writer,
        ):
            letters = Letters(file)
            for side in sides:
                side.load(database, letters)
            counts = [0] * len(sides)
            written = 0
            zones = Zones()
            example: list[bytes | None] = []  # the first value of each column of the log
            database.stream("log", _log_schema(rows, join), _log_batches(rows, join, letters, most_rows, zones))
            for batch in database.read(_query(rows, sides)):
                values = batch.columns[: len(names)]
                example = example or [each[0].as_py() for each in values]
                for place in range(len(sides)):
                    counts[place] += batch.column(len(names) + place).true_count
                written += batch.num_rows
                writer.write(pa.RecordBatch.from_arrays([each.cast(pa.binary()) for each in values], schema=schema))
            for side, count in zip(sides, counts, strict=True):
                if count == written:
                    raise side.stranger(database, example)
        unmatched = {side.files.files[0]: count for side, count in zip(sides, counts, strict=True)}
        brought = tuple(new for side in sides for new in side.brought.values())
        compared = {
            join.as_of or "": zones,
            **{f"{side.files.files[0]} {side.table.time}": side.zones for side in sides},
        }
        told = tuple(zones_told(compared))
        result = Joined(str(output / LOG / "*.parquet"), brought, written, unmatched, letters.rejected, told)
        write_json(output / SUMMARY, dataclasses.asdict(result))
    return result


def summary_of(joined: Joined) -> list[str]:
    """Returns a summary of a join, as lines of text."""
    lines = [f"{joined.rows:,} rows with {', '.join(joined.columns)}"]
    lines += [f"{count:,} of them have no partner in {path}" for path, count in joined.unmatched.items()]
    return [*lines, *joined.told, f"{joined.rejected:,} malformed rows in {rejects_beside(joined.log)}"]


# Sides ---------------------------------------------------------------------------------------------------------------


class _Side:
    """A side table.

    Args:
        place: The index of the table.
        table: Its settings.
        rows: The log.
    """

    def __init__(self, place: int, table: SideTable, rows: TextFiles):
        self.table, self.name = table, f"side{place}"
        self.files = text_files(table.paths, table.columns, list(table.on.values()))
        check_has(self.files, "time", [table.time] if table.time else [])
        check_has(self.files, "keep", table.keep)
        used = {*table.on.values(), table.time}
        kept = table.keep or [name for name in self.files.names if name not in used]
        self.brought = {name: f"{table.prefix}{name}" for name in kept}
        if not kept:
            raise InputError(f"{self.files.files[0]}: it has no column besides its key; name a table with others")
        self.zones = Zones()
        self._places = [rows.names.index(name) for name in table.on]

    @property
    def _keys(self) -> list[str]:
        return [f"k{place}" for place in range(len(self._places))]

    @property
    def condition(self) -> str:
        """The join condition in SQL."""
        equal = [f"log.c{place} = {self.name}.k{key}" for key, place in enumerate(self._places)]
        return " and ".join([*equal, *([f"log.{_MOMENT} > {self.name}.{_MOMENT}"] if self.table.time else [])])

    def load(self, database: "_Database", letters: Letters) -> None:
        """Writes the table to the database, each key once.

        Raises:
            InputError: the table has two rows of a key, and no setting for duplicates.
        """
        keys = self._keys
        fields = [(key, pa.binary()) for key in keys] + [
            (f"c{place}", pa.binary()) for place in range(len(self.brought))
        ]
        schema = pa.schema(
            [*fields, (_MOMENT, pa.float64()), *((name, pa.int64()) for name in (_NUMBER, _LINE, _FILE))]
        )
        given = " and ".join(f"{key} is not null" for key in keys)
        database.stream(f"{self.name}_read", schema, self._batches(schema, letters))
        database.run(f"create table {self.name}_all as select * from {self.name}_read where {given}")
        group = ", ".join([*keys, *([_MOMENT] if self.table.time else [])])
        if self.table.duplicates == "refuse":
            self._refuse(database, group)
            database.run(f"alter table {self.name}_all rename to {self.name}")
            return
        order = "asc" if self.table.duplicates == "first" else "desc"
        database.run(
            f"create table {self.name} as select * from {self.name}_all "
            f"qualify row_number() over (partition by {group} order by {_NUMBER} {order}) = 1"
        )
        database.run(f"drop table {self.name}_all")

    def _refuse(self, database: "_Database", group: str) -> None:
        # A list of each key's places would not go to the disk where the memory ends; numbers do.
        repeated = database.rows(
            f"select {group}, count(*), min({_NUMBER}) as first from {self.name}_all group by {group} "
            "having count(*) > 1 order by first limit 1"
        )
        if not repeated:
            return
        *values, count, number = repeated[0]
        where = database.rows(
            f"select {_FILE}, {_LINE} from {self.name}_all join "
            f"(select {group} from {self.name}_all where {_NUMBER} = {number}) using ({group}) "
            f"order by {_NUMBER} limit 2"
        )
        key = ", ".join(f"{name} {excerpt(value)}" for name, value in zip(self.table.on.values(), values, strict=False))
        unit = self.files.spec.line_or_row
        first, second = (f"{self.files.files[file]} {unit} {line}" for file, line in where)
        again = " of the same time" if self.table.time else ""
        raise InputError(
            f"{self.files.files[0]}: {key} has {count} rows{again}, as {first} and {second}; leave one of them, "
            "or choose duplicates: first or last"
        )

    def stranger(self, database: "_Database", example: Sequence[bytes | None]) -> InputError:
        """Returns the error for a table whose keys match no row of the log.

        Args:
            database: The database with the table.
            example: The values of a row of the log.
        """
        own = database.rows(f"select {', '.join(self._keys)} from {self.name} order by {_NUMBER} limit 1")
        pair = ([example[place] for place in self._places], own[0] if own else ())
        log, table = (", ".join("nothing" if each is None else f"'{excerpt(each)}'" for each in row) for row in pair)
        return InputError(
            f"{self.files.files[0]}: no row of the log has its {' and '.join(self.table.on)} in it, where the log "
            f"begins with {log or 'nothing'} and the table with {table or 'nothing'}; is it the log's table, and are "
            "the keys written alike?"
        )

    def _batches(self, schema: pa.Schema, letters: Letters) -> Iterator[pa.RecordBatch]:
        number = 0
        for batch, moments in _timed(self.files, self.table.time, self.table.time_format, letters, self.zones):
            rows = batch.rows.num_rows
            names = [*self.table.on.values(), *self.brought]
            file = self.files.files.index(batch.path)
            order = np.arange(number, number + rows)
            number += rows
            others = [moments, order, batch.lines, np.full(rows, file)]
            arrays = [*(batch.rows[name] for name in names), *map(pa.array, others)]
            yield pa.RecordBatch.from_arrays(
                [each.cast(kind) for each, kind in zip(arrays, schema.types, strict=True)], schema=schema
            )


def _timed(
    side: TextFiles, column: str | None, time_format: str, letters: Letters, zones: Zones
) -> Iterator[tuple[LogBatch, np.ndarray]]:
    if column is not None:
        yield from with_moments(side, column, time_format, letters, zones)
        return
    for batch in side.batches(letters):
        yield batch, np.zeros(batch.rows.num_rows)


# The log -------------------------------------------------------------------------------------------------------------


def _log_schema(rows: TextFiles, join: Join) -> pa.Schema:
    columns = [(f"c{place}", pa.binary()) for place in range(len(rows.names))]
    return pa.schema([*columns, (_MOMENT, pa.float64()), (_NUMBER, pa.int64())])


def _log_batches(
    rows: TextFiles, join: Join, letters: Letters, most_rows: int | None, zones: Zones
) -> Iterator[pa.RecordBatch]:
    schema, number = _log_schema(rows, join), 0
    for batch, moments in _timed(rows, join.as_of, join.time_format, letters, zones):
        count = batch.rows.num_rows
        arrays = [
            *(batch.rows[name] for name in rows.names),
            pa.array(moments),
            pa.array(np.arange(number, number + count)),
        ]
        number += count
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        if most_rows is not None and number >= most_rows:
            return


def _query(rows: TextFiles, sides: Sequence[_Side]) -> str:
    selected = [f"log.c{place}" for place in range(len(rows.names))]
    selected += [f"{side.name}.c{place}" for side in sides for place in range(len(side.brought))]
    selected += [f"{side.name}.{_NUMBER} is null" for side in sides]
    named = ", ".join(f"{each} as r{place}" for place, each in enumerate(selected))
    joins = " ".join(f"{'asof ' if side.table.time else ''}left join {side.name} on {side.condition}" for side in sides)
    return f"select {named} from log {joins} order by log.{_NUMBER}"


class _Database(contextlib.AbstractContextManager["_Database"]):
    """A DuckDB database on disk. An InputError raised inside a stream is re-raised unchanged."""

    def __init__(self, folder: pathlib.Path):
        import duckdb  # lazy: of the extra sql

        self._error: type[Exception] = duckdb.Error
        memory = max(_FEWEST_BYTES, int(_MEMORY_SHARE * memory_limit()))
        settings: dict[str, Any] = {
            "threads": cores(),
            "memory_limit": f"{memory}B",
            "temp_directory": str(folder),
            "preserve_insertion_order": False,
        }
        self._connection: Any = duckdb.connect(str(folder / "tables.duckdb"), config=settings)
        self._mistake: InputError | None = None

    def stream(self, name: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> None:
        """Registers batches as a table that can be read once."""
        self._connection.register(name, pa.RecordBatchReader.from_batches(schema, self._noted(batches)))

    def _noted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except InputError as error:
            self._mistake = error
            raise

    def run(self, query: str) -> None:
        """Runs a statement."""
        with self._errors():
            self._connection.execute(query)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Returns the rows of a query."""
        with self._errors():
            rows: list[tuple[Any, ...]] = self._connection.execute(query).fetchall()
        return rows

    def read(self, query: str) -> Iterator[pa.RecordBatch]:
        """Yields the rows of a query."""
        with self._errors():
            yield from self._connection.sql(query).to_arrow_reader(_BATCH_ROWS)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (self._error, pa.ArrowException, OSError) as error:
            if self._mistake:
                raise self._mistake from error
            raise InputError(
                f"the join failed in DuckDB ({one_line(error, 200)}); is there space on the disk?"
            ) from error

    def __exit__(self, *error: object) -> None:
        self._connection.close()
