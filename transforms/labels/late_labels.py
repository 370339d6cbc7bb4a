"""Joins a log with delayed labels: rows wait for their labels, or are written as rows and labels arrive.

A row is positive if its label arrives within a delay of the row's own time. Every row thus has the same time to get a
label. Rows whose delay has not passed are left out, positives included. If rows may take three days and some are one
day old, their positives are known before their negatives. Keeping only these positives would raise the positive rate of
the newest rows.

References:
    Ktena et al., "Addressing Delayed Feedback for Continuous Training with Neural Networks in CTR prediction", 2019.
"""

import dataclasses
import datetime
import pathlib
import zlib
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_folder, write_json
from ctrpipe.common.hashing import hash_values
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.labels.labelled import (
    DEAD_LETTER,
    LOG,
    REJECTS,
    SUMMARY,
    KeyedLabels,
    Letters,
    TextFiles,
    brought_columns,
    once_by_key,
    rejects_beside,
)
from ctrpipe.transforms.labels.moments import Moments, moments_of, with_moments
from ctrpipe.transforms.log.payload import PayloadWriter
from ctrpipe.transforms.log.spec import LabelDelay
from ctrpipe.transforms.log.times import EightDigits

PART = "part"  # values: 0 training, 1 validation, 2 test
_MOMENT = "\0moment"  # name of the column of times in the table of labels


@dataclasses.dataclass
class LateLabels:
    """The result of a join with delayed labels.

    Attributes:
        log: A glob of the joined Parquet files.
        label: The columns that come from the labels.
        until: The time up to which labels are known, ISO 8601.
        rows: Number of rows written.
        pending: Number of rows left out because their label may still arrive.
        early: Number of pending rows that already have a label.
        late: Number of labels that arrived after the delay and do not count.
        former: Number of rows left out because an earlier join, up to `since`, has written them.
        positives: Number of rows written with a label that arrived in time.
        repeated: Number of positives that are also written as a negative, in this log or an earlier one.
        unused: Number of labels whose key is in no row.
        rejected: Number of malformed rows in both inputs, including rows without a time.
    """

    log: str
    label: tuple[str, ...]
    until: str
    rows: int = 0
    pending: int = 0
    early: int = 0
    late: int = 0
    former: int = 0
    positives: int = 0
    repeated: int = 0
    unused: int = 0
    rejected: int = 0


def join_late_labels(
    log: list[str], delay: LabelDelay, output: pathlib.Path, fake_negatives: bool = False, seed: int = 1
) -> LateLabels:
    """Writes a log with its labels. All columns are text, and the order is the log's.

    Args:
        log: The log's files and globs.
        delay: Where the labels are, and how long a label may take. If it names no labels, the log contains them.
        output: The folder for `log/*.parquet`, `dead_letter/rejects.jsonl` and `summary.json`.
        fake_negatives: Whether to write rows as they arrive: at once as a negative, and again as a positive when the
            label arrives. The column PART is then 0 for these rows, and 1 or 2 for rows that waited for their label.
        seed: Seed that selects the rows which wait for their labels despite `fake_negatives`.

    Raises:
        InputError: a file cannot be read; a column is missing, or has no times; a key has two labels; or no row is
            left.
    """
    rows = TextFiles.of(log, delay.key)
    partners = TextFiles.of(delay.labels, delay.key) if delay.labels else None
    brought = brought_columns(rows, partners, delay.key, delay.label_time) if partners else {}
    _check_columns(rows, partners, delay, fake_negatives)
    since = -np.inf if delay.since is None else moment_of(delay.since, delay, "since")
    check_output(output)
    with one_run_at_a_time(output), atomic_folder(output / LOG) as unfinished:
        (output / DEAD_LETTER).mkdir(exist_ok=True)
        with open(output / DEAD_LETTER / REJECTS, "w") as file:
            letters = Letters(file)
            labels, newest = _read_labels(partners, brought, delay, letters) if partners else (None, -np.inf)
            if delay.until is None:
                until = max(newest, _newest(rows, delay))
            else:
                until = moment_of(delay.until, delay, "until")
            counts = LateLabels(str(output / LOG / "*.parquet"), tuple(brought.values()), _shown(until))
            names = [*rows.names, *brought.values(), *([PART] if fake_negatives else [])]
            schema = pa.schema([(name, pa.binary()) for name in names])
            join = _Join(delay, since, until, labels, brought, seed, counts)
            with PayloadWriter(unfinished, "part", schema) as writer:
                for batch, moments in with_moments(rows, delay.time, delay.time_format, letters):
                    known = join.known(batch.rows, moments)
                    for part in join.as_they_arrive(known) if fake_negatives else join.settled(known):
                        writer.write(part)
                        counts.rows += part.num_rows
            counts.unused = labels.unused if labels else 0
            counts.rejected = letters.rejected
        _check_counts(counts, rows, partners, delay)
        write_json(output / SUMMARY, dataclasses.asdict(counts))
    return counts


def summary_of(counts: LateLabels, delay: LabelDelay) -> list[str]:
    """Returns a summary of a join, as lines of text."""
    lines = [
        f"{counts.rows:,} rows, {counts.positives:,} with a label in time; labels are known until {counts.until}",
        f"{counts.pending:,} rows have not had {delay.delay} by then and are left out, {counts.early:,} of them with a "
        f"label; {counts.late:,} labels came later than {delay.delay} and do not count",
        f"{counts.unused:,} labels of no row; {counts.rejected:,} malformed rows in {rejects_beside(counts.log)}",
    ]
    if counts.repeated:
        lines.insert(1, f"{counts.repeated:,} rows are positives beside the negatives that they were until then")
    if counts.former:
        lines.insert(-1, f"{counts.former:,} rows were known at {delay.since} and are left out")
    return lines


def moment_of(text: str, delay: LabelDelay, name: str) -> float:
    """Parses a time, and returns it in seconds since 1970.

    Raises:
        InputError: the text is not a time, or has eight digits that may be a date or an hour.
    """
    dates = EightDigits.among([text]).are_dates(name) if delay.time_format not in ("yymmddhh", "yyyymmdd") else False
    moments = [moments_of(pa.array([text.encode()]), form, dates)[0] for form in (delay.time_format, "auto")]
    known = [moment for moment in moments if not np.isnan(moment)]
    if not known:
        raise InputError(f"{name}: '{text}' is not a time; write it as the log does, or as 2026-11-02T00:00:00Z")
    return float(known[0])


def _check_columns(rows: TextFiles, partners: TextFiles | None, delay: LabelDelay, fake_negatives: bool) -> None:
    wanted = [(rows, "time", delay.time)]
    if partners and delay.label_time:
        wanted.append((partners, "label_time", delay.label_time))
    for side, name, column in wanted:
        if column not in side.names:
            raise InputError(
                f"{side.files[0]}: {name}: there is no column {column}; it has {excerpt(', '.join(side.names))}"
                f"{did_you_mean(column, side.names)}"
            )
    if fake_negatives and not (partners and delay.label_time):
        raise InputError("fake negatives: a row becomes positive at the time of its label; give label_time")
    if fake_negatives and PART in rows.names:
        raise InputError(f"{rows.files[0]}: the log has a column {PART}, which the rows get; rename it")


def _check_counts(counts: LateLabels, rows: TextFiles, partners: TextFiles | None, delay: LabelDelay) -> None:
    if not counts.rows:
        raise InputError(
            f"{rows.files[0]}: no row is left: {counts.pending:,} have not had {delay.delay} by {counts.until}, "
            f"{counts.former:,} are of before; give a shorter delay or a longer log"
        )
    if partners and not counts.positives:
        raise InputError(f"{partners.files[0]}: no row of the log has a label in it; are these the log's labels?")


def _shown(moment: float) -> str:
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).isoformat().replace("+00:00", "Z")


# Times ---------------------------------------------------------------------------------------------------------------


def _newest(rows: TextFiles, delay: LabelDelay) -> float:
    """Returns the newest time of the log."""
    timed = with_moments(rows, delay.time, delay.time_format, Letters())
    return max(float(moments.max(initial=-np.inf)) for _, moments in timed)


def _read_labels(
    partners: TextFiles, brought: dict[str, str], delay: LabelDelay, letters: Letters
) -> tuple[KeyedLabels, float]:
    """Returns the labels, each key once with its earliest time, and the newest time of all labels.

    Labels without times have the time -inf.
    """
    key = str(delay.key)
    names = [key, *(name for name in brought if name != key)]
    if delay.label_time:
        timed = with_moments(partners, delay.label_time, delay.time_format, letters)
        parts = [(batch.rows, moments) for batch, moments in timed]
    else:
        parts = [(batch.rows, np.full(batch.rows.num_rows, -np.inf)) for batch in partners.batches(letters)]
    tables = [
        pa.Table.from_batches([rows]).select(names).append_column(_MOMENT, pa.array(times)) for rows, times in parts
    ]
    table = once_by_key(pa.concat_tables(tables), key, partners.files[0], _MOMENT)
    newest = max((float(times.max(initial=-np.inf)) for _, times in parts), default=-np.inf)
    table = table.rename_columns([_MOMENT if each == f"{_MOMENT}_min" else each for each in table.column_names])
    return KeyedLabels(table, key, brought, delay.unmatched), newest


# Rows ----------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Known:
    """Rows with their labels and times.

    Attributes:
        rows: The columns of the log and of the labels.
        moments: The rows' times, `[N]`.
        arrivals: The labels' times, `[N]`. NaN for a row without a label.
        in_time: Whether a label is known and arrived within the delay, `[N]`.
    """

    rows: pa.Table
    moments: Moments
    arrivals: Moments
    in_time: npt.NDArray[np.bool_]


class _Join:
    """Selects and labels the rows to write, and counts them."""

    def __init__(
        self,
        delay: LabelDelay,
        since: float,
        until: float,
        labels: KeyedLabels | None,
        brought: dict[str, str],
        seed: int,
        counts: LateLabels,
    ):
        self._delay, self._since, self._until, self._counts = delay, since, until, counts
        self._labels, self._brought, self._seed = labels, brought, seed
        self._seconds = 60 * delay.minutes

    def known(self, rows: pa.RecordBatch, moments: Moments) -> _Known:
        """Returns the rows with their labels and the labels' times."""
        if self._labels is None:
            nothing = np.full(len(moments), np.nan)
            return _Known(pa.Table.from_batches([rows]), moments, nothing, np.zeros(len(moments), bool))
        table, places = self._labels.joined(rows)
        arrivals = self._labels.table[_MOMENT].take(places).to_numpy()  # NaN for a row without a label
        in_time = (arrivals <= moments + self._seconds) & (arrivals <= self._until)
        return _Known(table, moments, arrivals, in_time)

    def settled(self, known: _Known) -> Iterator[pa.RecordBatch]:
        """Yields the rows whose delay has passed, with their final labels."""
        kept = self._settled(known)
        self._count_pending(known, np.ones(len(kept), bool))
        self._counts.positives += int((known.in_time & kept).sum())
        yield from self._as_batches(known.rows, kept, known.in_time)

    def as_they_arrive(self, known: _Known) -> Iterator[pa.RecordBatch]:
        """Yields rows as negatives, and again as positives once their label has arrived.

        Validation and test rows wait for their final labels instead.
        """
        part = self._parts(known.rows[str(self._delay.key)])
        trained = (part == 0) & (known.moments <= self._until)
        new = trained & (known.moments > self._since)
        positive = trained & known.in_time & (known.arrivals > self._since) & self._is_positive(known.rows)
        waited = self._settled(known) & (part > 0)
        self._count_pending(known, part > 0)
        self._counts.former += int((trained & ~new).sum())
        self._counts.repeated += int(positive.sum())
        self._counts.positives += int((positive | (waited & known.in_time)).sum())
        rows = known.rows.append_column(PART, pa.array(part.astype(str)).cast(pa.binary()))
        yield from self._as_batches(rows, new, np.zeros(len(part), bool))
        yield from self._as_batches(rows, positive, known.in_time)
        yield from self._as_batches(rows, waited, known.in_time)

    def _settled(self, known: _Known) -> npt.NDArray[np.bool_]:
        over = known.moments + self._seconds
        kept: npt.NDArray[np.bool_] = (over <= self._until) & (over > self._since)
        return kept

    def _count_pending(self, known: _Known, waiting: npt.NDArray[np.bool_]) -> None:
        over = known.moments + self._seconds
        pending = waiting & (over > self._until)
        has_label = ~np.isnan(known.arrivals)
        self._counts.pending += int(pending.sum())
        self._counts.early += int((pending & has_label).sum())
        self._counts.late += int((waiting & (over <= self._until) & has_label & ~known.in_time).sum())
        self._counts.former += int((waiting & (over <= self._since)).sum())

    def _parts(self, keys: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """Returns 0 for rows that are written as they arrive, 1 or 2 for others. The part depends on the key only."""
        codes = np.array([zlib.crc32(key or b"") for key in keys.to_pylist()], np.uint64)
        draws = (hash_values(f"label_delay/{self._seed}", codes) >> np.uint64(11)) * 2.0**-53
        ends = np.cumsum([self._delay.test, self._delay.validation])
        parts: npt.NDArray[np.int64] = np.array([2, 1, 0])[np.searchsorted(ends, draws, side="right")]
        return parts

    def _is_positive(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        unmatched = self._delay.unmatched.encode()
        columns = [pc.not_equal(rows[name], unmatched).fill_null(False).to_numpy() for name in self._brought.values()]
        positive: npt.NDArray[np.bool_] = np.any(columns, axis=0)
        return positive

    def _as_batches(
        self, rows: pa.Table, kept: npt.NDArray[np.bool_], labelled: npt.NDArray[np.bool_]
    ) -> Iterator[pa.RecordBatch]:
        """Yields the rows in `kept`. Rows outside `labelled` get the label of unmatched rows."""
        rows, labelled = rows.filter(pa.array(kept)), labelled[kept]
        unmatched = pa.scalar(self._delay.unmatched.encode(), pa.binary())
        for name in self._brought.values():
            index = rows.column_names.index(name)
            rows = rows.set_column(index, name, pc.if_else(pa.array(labelled), rows[name], unmatched))
        yield from rows.combine_chunks().to_batches()
