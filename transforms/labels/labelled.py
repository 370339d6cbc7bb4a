"""Joins a log without labels with a file of labels, by row order or by key."""

import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TextIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_folder, write_json
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.batches import LogBatch, Reject
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.ingest import dead_letter
from ctrpipe.transforms.log.payload import PayloadWriter
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.sample import LogSample, read_sample, spec_of_texts
from ctrpipe.transforms.log.spec import LogSpec

LOG, DEAD_LETTER, REJECTS, SUMMARY = "log", "dead_letter", "rejects.jsonl", "summary.json"
_LABEL = "label"  # name of the label column if the labels have none


def rejects_beside(log: str) -> pathlib.Path:
    """Returns the dead-letter file of a prepared log, given the glob of the log's files."""
    return pathlib.Path(log).parents[1] / DEAD_LETTER / REJECTS


@dataclasses.dataclass(frozen=True)
class Labelled:
    """The result of a join.

    Attributes:
        log: A glob of the joined Parquet files.
        label: The columns that come from the labels.
        rows: Number of rows written.
        unmatched: Number of rows without a label. They are left out, or have the label `unmatched`.
        unused: Number of labels whose key is in no row.
        rejected: Number of malformed rows in both inputs. The partner of a malformed row is also left out.
    """

    log: str
    label: tuple[str, ...]
    rows: int
    unmatched: int
    unused: int
    rejected: int


def join_labels(
    log: list[str], labels: list[str], output: pathlib.Path, key: str | None = None, unmatched: str | None = None
) -> Labelled:
    """Writes the log with the labels as further columns. All columns are text, and the order is the log's.

    Args:
        log: The log's files and globs.
        labels: The labels' files and globs.
        output: The folder for `log/*.parquet`, `dead_letter/rejects.jsonl` and `summary.json`.
        key: A column of both inputs. None: the n-th row of the labels belongs to the n-th row of the log.
        unmatched: The label of rows whose key has no label. None: such rows are left out.

    Raises:
        InputError: a file cannot be read, the key is missing from one input or has two labels, or, without a key, the
            inputs have different numbers of rows.
    """
    rows, partners = TextFiles.of(log, key), TextFiles.of(labels, key)
    brought = brought_columns(rows, partners, key)
    check_output(output)
    with one_run_at_a_time(output), atomic_folder(output / LOG) as unfinished:
        (output / DEAD_LETTER).mkdir(exist_ok=True)
        schema = pa.schema([(name, pa.binary()) for name in [*rows.names, *brought.values()]])
        with (
            open(output / DEAD_LETTER / REJECTS, "w") as letters,
            PayloadWriter(unfinished, "part", schema) as writer,
        ):
            joined = _Join(rows, partners, brought, Letters(letters))
            counts = joined.by_order(writer) if key is None else joined.by_key(writer, key, unmatched)
        result = Labelled(str(output / LOG / "*.parquet"), tuple(brought.values()), *counts)
        if not result.rows:
            raise InputError(f"{partners.files[0]}: no row of the log has a label in it; are these the log's labels?")
        write_json(output / SUMMARY, dataclasses.asdict(result))
    return result


@dataclasses.dataclass(frozen=True)
class TextFiles:
    """Files of one format, read with all columns as text. `TextFiles.of` detects the format."""

    files: list[str]
    sample: LogSample
    spec: LogSpec

    @classmethod
    def of(cls, patterns: list[str], key: str | None = None) -> "TextFiles":
        """Returns the files of some patterns; `key` is the join column."""
        files = find_files(patterns)
        sample = read_sample(files[0])
        return cls(files, sample, spec_of_texts(sample, ids=[key]))

    @property
    def names(self) -> list[str]:
        return self.spec.feature_columns

    def batches(self, letters: "Letters") -> Iterator[LogBatch]:
        """Yields the rows in order, and adds malformed rows to `letters`."""
        reader = LogReader(self.spec, labels=False)
        for batch in itertools.chain.from_iterable(reader.read(path) for path in self.files):
            letters.add(batch.path, batch.rejects)
            yield batch


class Letters:
    """Counts malformed rows, and writes them to a dead-letter file if there is one.

    Args:
        file: The dead-letter file. It gets one line for each malformed row.
    """

    def __init__(self, file: TextIO | None = None):
        self.rejected = 0
        self._file = file

    def add(self, path: str, rejects: Sequence[Reject]) -> None:
        """Adds the malformed rows of a file."""
        self.rejected += len(rejects)
        if self._file:
            self._file.writelines(dead_letter(path, reject) for reject in rejects)


def brought_columns(
    rows: TextFiles, partners: TextFiles, key: str | None, label_time: str | None = None
) -> dict[str, str]:
    """Maps the label columns that are added to the log to their names in the log. `label_time` is not added.

    Raises:
        InputError: one of the two inputs lacks the key, or there is no column to add.
    """
    for side in (rows, partners):
        if key is not None and key not in side.names:
            raise InputError(
                f"{side.files[0]}: --key {key}: no such column; it has {excerpt(', '.join(side.names))}"
                f"{did_you_mean(key, side.names)}"
            )
    names = [name for name in partners.names if name not in (key, label_time)]
    if key is not None and not names:
        return {key: _LABEL}
    without_header = "columns" in partners.sample.data
    if without_header and len(names) == 1:
        return {names[0]: _LABEL}
    brought = {name: name for name in names if key is None or name not in rows.names}
    twice = sorted(set(brought) & set(rows.names))
    if twice or not brought:
        named = ", ".join(twice or names)
        raise InputError(f"{partners.files[0]}: the log has {named} already; which of the two is the label?")
    return brought


class _Join:
    """Writes the rows of a log with the columns of their labels."""

    def __init__(self, rows: TextFiles, partners: TextFiles, brought: dict[str, str], letters: Letters):
        self._rows, self._partners, self._brought, self._letters = rows, partners, brought, letters

    def by_order(self, writer: PayloadWriter) -> tuple[int, int, int, int]:
        """Returns the numbers of written rows, unmatched rows, unused labels and malformed rows."""
        written = 0
        sides = [_Ordered(side.batches(self._letters)) for side in (self._rows, self._partners)]
        while True:
            left, right = (side.next_rows() for side in sides)
            if left is None or right is None:
                break
            size = min(left.end - left.start, right.end - right.start)
            first, second = left.taken(size), right.taken(size)
            both = np.intersect1d(first.numbers, second.numbers)
            one, two = (each.rows.take(pa.array(np.searchsorted(each.numbers, both))) for each in (first, second))
            written += len(both)
            writer.write(self._together(one, two))
        counts = [side.count() for side in sides]
        if counts[0] != counts[1]:
            names = [side.files[0] for side in (self._rows, self._partners)]
            raise InputError(
                f"{names[1]}: {counts[1]:,} rows of labels for {counts[0]:,} rows of {names[0]}; "
                "without --key there must be one for each"
            )
        return written, 0, 0, self._letters.rejected

    def by_key(self, writer: PayloadWriter, key: str, unmatched: str | None) -> tuple[int, int, int, int]:
        """Returns the numbers of written rows, unmatched rows, unused labels and malformed rows."""
        labels = KeyedLabels(self._labels_by_key(key), key, self._brought, unmatched)
        written = without = 0
        for batch in self._rows.batches(self._letters):
            rows, places = labels.joined(batch.rows)
            without += places.null_count
            if unmatched is None:
                rows = rows.filter(places.is_valid())
            written += rows.num_rows
            for part in rows.combine_chunks().to_batches():
                writer.write(part)
        return written, without, labels.unused, self._letters.rejected

    def _labels_by_key(self, key: str) -> pa.Table:
        batches = [batch.rows for batch in self._partners.batches(self._letters)]
        names = [key, *(name for name in self._brought if name != key)]
        return once_by_key(pa.Table.from_batches(batches).select(names), key, self._partners.files[0])

    def _together(self, rows: pa.RecordBatch, partners: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: rows[name] for name in self._rows.names}
        columns |= {new: partners[name] for name, new in self._brought.items()}
        return pa.RecordBatch.from_pydict(columns)


class KeyedLabels:
    """Labels by key, to be joined to the rows of a log.

    Args:
        table: The labels. Each key occurs once.
        key: The key's column in the labels and in the log. Added to the log as a label, it is 1.
        brought: Maps the labels' columns to their names in the log.
        unmatched: The label of rows without one. None: null.
    """

    def __init__(self, table: pa.Table, key: str, brought: Mapping[str, str], unmatched: str | None):
        self.table = table
        self._key, self._brought, self._unmatched = key, brought, unmatched
        self._keys = table[key].combine_chunks()
        self._used = np.zeros(len(table), bool)

    def joined(self, rows: pa.RecordBatch) -> tuple[pa.Table, pa.Array]:
        """Returns rows with the columns of their labels, and the index of each row's label; null without a label."""
        places = pc.index_in(rows[self._key], value_set=self._keys, skip_nulls=True)
        self._used[places.drop_null().to_numpy()] = True
        labels = self.table.take(places).combine_chunks()
        table = pa.Table.from_batches([rows])
        for name, new in self._brought.items():
            values = _one_where(places) if name == self._key else labels[name]
            if self._unmatched is not None:
                values = pc.fill_null(values, self._unmatched.encode())
            table = table.append_column(new, values)
        return table, places

    @property
    def unused(self) -> int:
        """The number of labels that no row so far has used."""
        return int((~self._used).sum())


def once_by_key(table: pa.Table, key: str, path: str, moment: str | None = None) -> pa.Table:
    """Returns the labels with each key once.

    Args:
        table: The key, the label columns, and `moment`.
        key: The key's column. Rows without a key are left out.
        path: The labels' file, for the error message.
        moment: A column of numbers. The smallest number of each key is kept.

    Raises:
        InputError: a key has two different labels.
    """
    names = [name for name in table.column_names if name != moment]
    least = [(moment, "min")] if moment else []
    table = table.filter(table[key].is_valid()).group_by(names, use_threads=False).aggregate(least)
    if pc.count_distinct(table[key]).as_py() < table.num_rows:
        counted = max(pc.value_counts(table[key]), key=lambda count: count["counts"].as_py())
        twice = excerpt(counted["values"].as_py())
        raise InputError(f"{path}: {key} {twice} has two labels; leave one of them")
    return table


def _one_where(places: pa.Array) -> pa.Array:
    """Returns b"1" for rows with a label, null for others."""
    return pc.if_else(places.is_valid(), pa.scalar(b"1", pa.binary()), pa.scalar(None, pa.binary()))


@dataclasses.dataclass
class _Numbered:
    """Well-formed rows with their row numbers in the log, in [`start`, `end`). Malformed rows are counted too."""

    rows: pa.RecordBatch
    numbers: np.ndarray
    start: int
    end: int

    def taken(self, size: int) -> "_Numbered":
        """Removes the first `size` row numbers, and returns their rows."""
        stop = self.start + size
        count = int(np.searchsorted(self.numbers, stop))
        first = _Numbered(self.rows.slice(0, count), self.numbers[:count], self.start, stop)
        self.rows, self.numbers, self.start = self.rows.slice(count), self.numbers[count:], stop
        return first


class _Ordered:
    """Iterates over the rows of files with their row numbers, in chunks."""

    def __init__(self, batches: Iterator[LogBatch]):
        self._batches = batches
        self._current: _Numbered | None = None
        self._end = 0

    def next_rows(self) -> _Numbered | None:
        """Returns the remaining current rows, or the next rows if none remain. None after the last."""
        while self._current is None or self._current.start == self._current.end:
            batch = next(self._batches, None)
            if batch is None:
                return None
            lines = np.append(batch.lines, [reject.line for reject in batch.rejects]).astype(np.int64)
            numbers = self._end + np.argsort(np.argsort(lines, kind="stable"), kind="stable")[: len(batch.lines)]
            start, self._end = self._end, self._end + len(lines)
            self._current = _Numbered(batch.rows, numbers, start, self._end)
        return self._current

    def count(self) -> int:
        """Returns the number of all rows, including rows that were not taken."""
        for batch in self._batches:
            self._end += len(batch.lines) + len(batch.rejects)
        return self._end
