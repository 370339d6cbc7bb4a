"""Reads the ranges of an event log and partitions the events by user."""

import dataclasses
import pathlib
import zlib
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.hashing import hash_values
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.histories.moments import are_numbers, to_moments
from ctrpipe.transforms.histories.settings import EventLog
from ctrpipe.transforms.log.batches import LogBatch, Reject
from ctrpipe.transforms.log.files import NumberedRange
from ctrpipe.transforms.log.ingest import dead_letter, kind_of_reject
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

# Columns in addition to those of the log.
MOMENT, POSITIVE, ORDER = "moment of the event", "is positive", "place in the log"
COUNT = "events"
QUANTILES = 1000
PIECE_ROWS = 1 << 20  # approximate number of events in memory at once
PIECE_DRAWN = 1 << 18
DEAD_LETTERS_KEPT = 10_000  # per range


@dataclasses.dataclass(frozen=True)
class Piece:
    """Consecutive events of the log, written to files.

    Attributes:
        events: Arrow file with one batch per bucket of users.
        items: Arrow file with each item once: COUNT, MOMENT of its first event, and its item columns.
        drawn: Arrow file with item and MOMENT of a uniform sample of the positive events.
        rows: Number of events.
        rate: Share of the positive events in the sample.
        quantiles: QUANTILES + 1 evenly spaced quantiles of the events' moments, float64.
    """

    events: pathlib.Path
    items: pathlib.Path
    drawn: pathlib.Path
    rows: int
    rate: float
    quantiles: np.ndarray


@dataclasses.dataclass(frozen=True)
class Partitioned:
    """The result of partitioning a range of the log.

    Attributes:
        pieces: The well-formed events, in order.
        reasons: Number of malformed rows by reason.
        first: File, line and reason of the first malformed row; "" if there is none.
        letters: Lines for the dead-letter file, at most DEAD_LETTERS_KEPT.
        forms: The first time that is a number and the first that is not, each with its file and line.
    """

    pieces: tuple[Piece, ...]
    reasons: Counter[str]
    first: str
    letters: tuple[str, ...]
    forms: dict[bool, tuple[str, str]]


def hashes_of(texts: pa.Array) -> np.ndarray:
    """Returns a machine-independent hash (CRC-32) of each binary value, uint64 `[N]`."""
    distinct = texts.dictionary_encode()
    table = np.fromiter(map(zlib.crc32, distinct.dictionary.to_pylist()), np.uint64, len(distinct.dictionary))
    hashes: np.ndarray = table[distinct.indices.to_numpy()]
    return hashes


@dataclasses.dataclass(frozen=True)
class Partition:
    """Reads a range of the log and writes its events, partitioned by a hash of the user.

    Args:
        spec: Description of the log, with all columns except the label as text.
        events: The settings of the event log.
        buckets: Number of buckets of users.
        folder: Existing folder for the files.
        seed: Seed of the event sample.
    """

    spec: LogSpec
    events: EventLog
    buckets: int
    folder: pathlib.Path
    seed: int

    def __call__(self, item: NumberedRange) -> Partitioned:
        reader = LogReader(self.spec, labels=self.events.label is not None)
        rejects: list[tuple[str, Reject]] = []
        reasons: Counter[str] = Counter()
        letters: list[str] = []
        first = ""
        forms: dict[bool, tuple[str, str]] = {}
        pieces: list[Piece] = []
        waiting: list[pa.RecordBatch] = []
        for batch in reader.read_range(item.part):
            waiting.append(self._checked(batch, item.number, rejects))
            self._note_forms(batch, forms)
            if rejects and not first:
                path, reject = rejects[0]
                first = f"{path}: {self.spec.line_or_row} {reject.line}: {reject.reason}"
            reasons.update(kind_of_reject(reject) for _, reject in rejects)
            letters += [dead_letter(*each) for each in rejects[: DEAD_LETTERS_KEPT - len(letters)]]
            rejects.clear()
            if sum(rows.num_rows for rows in waiting) >= PIECE_ROWS:
                pieces.append(self._piece(waiting, f"{item.number:06d}-{len(pieces):06d}"))
                waiting = []
        if sum(rows.num_rows for rows in waiting):
            pieces.append(self._piece(waiting, f"{item.number:06d}-{len(pieces):06d}"))
        return Partitioned(tuple(pieces), reasons, first, tuple(letters), forms)

    def _note_forms(self, batch: LogBatch, forms: dict[bool, tuple[str, str]]) -> None:
        """Adds the first number and the first ISO 8601 time of the batch to `forms`."""
        if self.events.time_format is not None or len(forms) == 2:
            return
        times = batch.rows[self.events.time]
        numbers = np.asarray(are_numbers(times))
        for is_number in {True, False} - forms.keys():
            places = np.flatnonzero((numbers == is_number) & np.asarray(times.is_valid()))
            if len(places) and not is_number:
                places = places[~np.isnan(to_moments(times.take(pa.array(places)), None))]
            if len(places):
                line = f"{batch.path}: {self.spec.line_or_row} {batch.lines[places[0]]}"
                forms[is_number] = (times[int(places[0])].as_py().decode(), line)

    def _piece(self, batches: list[pa.RecordBatch], stem: str) -> Piece:
        table = pa.Table.from_batches(batches, self._schema()).combine_chunks()
        paths = [self.folder / f"{name}-{stem}.arrow" for name in ("events", "items", "drawn")]
        self._write_buckets(table, paths[0])
        _write(paths[1], items_of(table, self.events))
        drawn, rate = self._sample(table, stem)
        _write(paths[2], drawn)
        quantiles = np.quantile(table[MOMENT].to_numpy(), np.linspace(0, 1, QUANTILES + 1), method="inverted_cdf")
        return Piece(paths[0], paths[1], paths[2], table.num_rows, rate, quantiles)

    def _schema(self) -> pa.Schema:
        own = [(MOMENT, pa.float64()), (POSITIVE, pa.bool_()), (ORDER, pa.int64())]
        return pa.schema([*((name, pa.binary()) for name in self.spec.feature_columns), *own])

    def _checked(self, batch: LogBatch, number: int, rejects: list[tuple[str, Reject]]) -> pa.RecordBatch:
        """Returns the well-formed events of a batch and appends the malformed ones to `rejects`."""
        rows = batch.rows
        rejects += [(batch.path, reject) for reject in batch.rejects]
        moments = to_moments(rows[self.events.time], self.events.time_format)
        good = ~np.isnan(moments)
        faults = dict.fromkeys(np.flatnonzero(~good).tolist(), self.events.time)
        for name in (self.events.user, self.events.item):
            absent = np.flatnonzero(rows[name].is_null().to_numpy(zero_copy_only=False))
            good[absent] = False
            faults |= dict.fromkeys(absent.tolist(), name)
        rejects += [(batch.path, self._reject(rows, int(batch.lines[row]), row, name)) for row, name in faults.items()]
        label = self.events.label
        positive = rows[label.column].to_numpy() > 0 if label else np.ones(rows.num_rows, bool)
        columns = [rows[name] for name in self.spec.feature_columns]
        own = [pa.array(moments), pa.array(positive), pa.array((number << 40) + batch.lines)]
        kept = pa.RecordBatch.from_arrays([*columns, *own], schema=self._schema())
        return kept if good.all() else kept.filter(pa.array(good))

    def _reject(self, rows: pa.RecordBatch, line: int, row: int, name: str) -> Reject:
        values = [(rows[column][row].as_py() or b"").decode("utf-8", "replace") for column in self.spec.feature_columns]
        value = rows[name][row].as_py()
        shown = "nothing" if value is None else f"'{excerpt(value)}'"
        form = self.events.time_format
        expected = f"a time of the form {form}" if form else "a number or an ISO 8601 time"
        reason = f"{name}: {shown} is not {expected}" if name == self.events.time else f"{name}: no value"
        return Reject(line, reason, "\t".join(values))

    def _write_buckets(self, table: pa.Table, path: pathlib.Path) -> None:
        bucket = (hashes_of(table[self.events.user].combine_chunks()) % np.uint64(self.buckets)).astype(np.int64)
        order = np.argsort(bucket, kind="stable")
        ends = np.append(0, np.cumsum(np.bincount(bucket, minlength=self.buckets)))
        rows = table.take(pa.array(order)).combine_chunks()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            for start, end in zip(ends[:-1], ends[1:], strict=True):
                [batch] = rows.slice(start, end - start).to_batches() or [_none(table.schema)]
                writer.write_batch(batch)

    def _sample(self, table: pa.Table, stem: str) -> tuple[pa.Table, float]:
        """Returns item and moment of a sample of the positive events, and the sampled share."""
        positive = table.select([self.events.item, MOMENT]).filter(table[POSITIVE])
        if positive.num_rows <= PIECE_DRAWN:
            return positive, 1.0
        keys = hash_values(f"{self.seed}/{stem}/events", np.arange(positive.num_rows))
        chosen = np.sort(np.argpartition(keys, PIECE_DRAWN)[:PIECE_DRAWN])
        return positive.take(pa.array(chosen)), PIECE_DRAWN / positive.num_rows


def items_of(table: pa.Table, events: EventLog, counted: bool = False) -> pa.Table:
    """Returns each item once, with its number of events, first moment, and item columns at that moment.

    Args:
        table: Events; with `counted`, concatenated results of this function.
        events: The settings of the event log.
        counted: Whether the table already has COUNT.
    """
    if not counted:
        table = table.append_column(COUNT, pa.array(np.ones(table.num_rows, np.int64)))
    # Row order breaks ties between events of the same moment, so the result does not depend on the ranges.
    table = table.select([events.item, MOMENT, COUNT, *events.item_columns]).sort_by([(MOMENT, "ascending")])
    firsts = [(name, "first", pc.ScalarAggregateOptions(skip_nulls=False)) for name in events.item_columns]
    items = table.group_by(events.item, use_threads=False).aggregate([(COUNT, "sum"), (MOMENT, "min"), *firsts])
    named = {events.item: events.item, f"{MOMENT}_min": MOMENT, f"{COUNT}_sum": COUNT}
    named |= {f"{name}_first": name for name in events.item_columns}
    return items.select(list(named)).rename_columns(list(named.values()))


def read_bucket(parts: list[pathlib.Path], bucket: int) -> pa.Table:
    """Returns the events of a bucket of users, in log order."""
    return pa.Table.from_batches(_batches(parts, bucket)).combine_chunks()


def _batches(parts: list[pathlib.Path], bucket: int) -> Iterator[pa.RecordBatch]:
    for path in parts:
        yield pa.ipc.open_file(pa.memory_map(str(path))).get_batch(bucket)


def _write(path: pathlib.Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _none(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], field.type) for field in schema], schema=schema)
