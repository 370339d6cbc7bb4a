"""Converts an event log to impressions with histories, on parallel workers and in bounded memory.

Workers read ranges of the log and partition the events into buckets by a hash of the user. Each bucket is then sorted
by user and time, so that the history of an event precedes it. The largest bucket, which has all events of its users,
and the table of items must fit into memory.
"""

import dataclasses
import json
import pathlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_folder, temporary_folder, write_json
from ctrpipe.common.near import did_you_mean
from ctrpipe.common.printable import excerpt
from ctrpipe.common.processes import Workers
from ctrpipe.common.stores import absolute
from ctrpipe.transforms.histories.catalogue import write_catalogue
from ctrpipe.transforms.histories.impressions import PARTS, WriteImpressions, Written
from ctrpipe.transforms.histories.moments import to_cut, to_moments
from ctrpipe.transforms.histories.partition import Partition, Partitioned, Piece
from ctrpipe.transforms.histories.settings import LABEL, PART, WEIGHT, EventLog
from ctrpipe.transforms.log.files import find_files, numbered, state_of
from ctrpipe.transforms.log.ingest import DEAD_LETTERS_KEPT
from ctrpipe.transforms.log.readers import plan
from ctrpipe.transforms.log.spec import LogSpec

LOG, DEAD_LETTER, SUMMARY = "log", "dead_letter", "summary.json"
_BUCKET_BYTES = 16 << 20  # of the log, per bucket
_BYTES_PER_SECOND = 4e6  # throughput of one process, all steps together
_READ_SHARE = 0.3  # share of that time spent reading
_ONE_PROCESS = Workers(processes=1)


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The result of `prepare`.

    Attributes:
        events: Number of well-formed events.
        rejected: Number of malformed rows; the first are in `dead_letter/rejects.jsonl`.
        reasons: Number of malformed rows by reason.
        users, items: Number of users and items.
        rows, positives: Number of impressions by part: all, and those with label 1.
        without_history: Number of impressions with an empty history.
        short: Number of positive events with fewer negatives than requested.
        cuts: First moments of validation and test; None with `leave_one_out`.
        columns: Columns of the impressions.
        log: Glob of the impression files.
    """

    events: int
    rejected: int
    reasons: dict[str, int]
    users: int
    items: int
    rows: dict[str, int]
    positives: dict[str, int]
    without_history: int
    short: int
    cuts: tuple[float, float] | None
    columns: tuple[str, ...]
    log: str


def prepare(
    paths: Sequence[str],
    spec: LogSpec,
    events: EventLog,
    output: pathlib.Path,
    seed: int = 1,
    workers: Workers = _ONE_PROCESS,
    progress: Callable[[str], None] = lambda text: None,
) -> Prepared:
    """Converts an event log to impressions. The result does not depend on the number of workers.

    Args:
        paths: Files and globs of the log.
        spec: Description of the log, with all columns except the label as text.
        events: Settings of the event log and of the impressions.
        output: Folder for `log/*.parquet`, `dead_letter/rejects.jsonl` and `summary.json`. An existing log of the
            same files and settings is reused.
        seed: Seed of the negatives and the row order.
        workers: The workers; all must have access to the folder.
        progress: Called with a progress line after each range or bucket.

    Raises:
        InputError: a file or column is missing, too many rows are malformed, or a part would be empty.
    """
    files = find_files(list(paths))
    _check_settings(files[0], spec, events)
    given = _fingerprint(files, spec, events, seed)
    previous = _previous(output / SUMMARY, given)
    if previous:
        progress("The impressions of these files are already there")
        return previous
    output.mkdir(parents=True, exist_ok=True)
    with temporary_folder(output / ".unfinished") as scratch, atomic_folder(output / LOG) as log:
        ranges = plan(files, spec, events.label is not None, workers)
        size = sum(part.size for part in ranges)
        buckets = max(1, -(-size // _BUCKET_BYTES))
        partition = Partition(spec, events, buckets, scratch, seed)
        parts = numbered(ranges, files)
        seconds = size / _BYTES_PER_SECOND
        done = workers.map(
            partition,
            parts,
            seconds * _READ_SHARE,
            progress=lambda count: progress(f"{count} of {len(parts)} parts of the log read"),
        )
        rejected, reasons = _write_dead_letters(done, output / DEAD_LETTER)
        pieces = [piece for part in done for piece in part.pieces]
        total = sum(piece.rows for piece in pieces)
        _check_counts(done, total, rejected, spec)
        cuts = _cuts(pieces, events, _example(done, events))
        items = write_catalogue(pieces, events, seed, scratch)
        paths_of_events = tuple(piece.events for piece in pieces)
        work = WriteImpressions(paths_of_events, tuple(spec.feature_columns), events, cuts, scratch, log, seed)
        written = workers.map(
            work,
            range(buckets),
            seconds * (1 - _READ_SHARE),
            progress=lambda count: progress(f"{count} of {buckets} parts of the users written"),
        )
        result = _result(written, total, rejected, reasons, items, cuts, spec, events, output)
        _check_parts(result, files[0])
        (output / SUMMARY).unlink(missing_ok=True)
    write_json(output / SUMMARY, {**dataclasses.asdict(result), "input": given})
    return result


def _check_settings(path: str, spec: LogSpec, events: EventLog) -> None:
    names = spec.feature_columns
    wanted = [events.user, events.item, events.time, *events.item_columns, *events.sequences]
    absent = [name for name in wanted if name not in names]
    if absent:
        raise InputError(
            f"{path}: the event log has no column {absent[0]}; it has {excerpt(', '.join(names))}"
            f"{did_you_mean(absent[0], names)}"
        )
    try:
        to_moments(pa.array(["a text"]), events.time_format)
    except ValueError as error:
        raise InputError(f"time_format: {one_line(error, 100)}; use the directives of strptime") from error
    made = {LABEL, PART, WEIGHT, *events.made_columns}
    taken = [name for name in names if name in made]
    if taken:
        raise InputError(f"{path}: the event log has a column {taken[0]}, which the impressions get; rename it")


def _fingerprint(files: Sequence[str], spec: LogSpec, events: EventLog, seed: int) -> dict[str, Any]:
    states = {absolute(file): list(state_of(file)) for file in files}
    read = spec.data.model_dump(mode="json")
    return {"files": states, "events": events.model_dump(mode="json"), "data": read, "seed": seed}


def _previous(summary: pathlib.Path, given: dict[str, Any]) -> Prepared | None:
    if not summary.is_file():
        return None
    previous = json.loads(summary.read_text())
    if previous.pop("input") != given:
        return None
    cuts = previous["cuts"]
    return Prepared(**{**previous, "columns": tuple(previous["columns"]), "cuts": cuts and tuple(cuts)})


def _write_dead_letters(done: Sequence[Partitioned], folder: pathlib.Path) -> tuple[int, dict[str, int]]:
    """Writes the dead-letter file and returns the number of malformed rows, in total and by reason."""
    folder.mkdir(exist_ok=True)
    letters = [letter for part in done for letter in part.letters]
    with open(folder / "rejects.jsonl", "w") as file:
        file.writelines(letters[:DEAD_LETTERS_KEPT])
    reasons = sum((part.reasons for part in done), Counter[str]())
    return reasons.total(), dict(reasons)


def _check_counts(done: Sequence[Partitioned], rows: int, rejected: int, spec: LogSpec) -> None:
    first = next((part.first for part in done if part.first), "the log has no events")
    if not rows or rejected > spec.data.max_bad_row_rate * (rows + rejected):
        raise InputError(
            f"{first}; {rejected} of {rows + rejected} events are malformed, above data.max_bad_row_rate "
            f"{spec.data.max_bad_row_rate}; do user, item, time and time_format match the log?"
        )


def _example(done: Sequence[Partitioned], events: EventLog) -> str:
    """Returns a time of the log, which tells whether its times are numbers; "" with `time_format`.

    Raises:
        InputError: only some times are numbers.
    """
    first: dict[bool, tuple[str, str]] = {}
    for part in done:
        first = part.forms | first
    if len(first) == 2:
        (number, of_number), (moment, of_moment) = first[True], first[False]
        raise InputError(
            f"{of_moment}: {events.time}: '{moment}' is a date or moment, and '{number}' ({of_number}) is a number; "
            "write all times in one form, or set time_format"
        )
    return next(iter(first.values()), ("", ""))[0]


def _cuts(pieces: Sequence[Piece], events: EventLog, example: str) -> tuple[float, float] | None:
    """Returns the first moments of validation and test; None for leave-one-out. `example` is a time of the log."""
    if events.split == "leave_one_out":
        return None
    if events.validation_from is not None and events.test_from is not None:
        cuts: list[float] = []
        for name, text in (("validation_from", events.validation_from), ("test_from", events.test_from)):
            try:
                cuts.append(to_cut(text, events.time_format, example))
            except ValueError as error:
                raise InputError(f"{name}: {error}; write it as the log does") from error
        return cuts[0], cuts[1]
    moments = np.concatenate([piece.quantiles for piece in pieces])
    weights = np.concatenate([np.full(len(piece.quantiles), piece.rows / len(piece.quantiles)) for piece in pieces])
    order = np.argsort(moments, kind="stable")
    shares = np.cumsum(weights[order]) / weights.sum()
    first, second = np.searchsorted(shares, [1 - events.validation - events.test, 1 - events.test], side="right")
    return float(moments[order][first]), float(moments[order][second])


def _result(
    written: Sequence[Written],
    total: int,
    rejected: int,
    reasons: dict[str, int],
    items: int,
    cuts: tuple[float, float] | None,
    spec: LogSpec,
    events: EventLog,
    output: pathlib.Path,
) -> Prepared:
    rows: Counter[str] = Counter()
    positives: Counter[str] = Counter()
    for part in written:
        rows.update(part.rows)
        positives.update(part.positives)
    own = [LABEL, PART, *([WEIGHT] if events.has_weight else [])]
    return Prepared(
        total,
        rejected,
        reasons,
        sum(part.users for part in written),
        items,
        {name: rows[name] for name in PARTS},
        {name: positives[name] for name in PARTS},
        sum(part.without_history for part in written),
        sum(part.short for part in written),
        cuts,
        (*own, *spec.feature_columns, *events.made_columns),
        str(output / LOG / "part-*.parquet"),
    )


def _check_parts(result: Prepared, path: str) -> None:
    empty = [name for name, rows in result.rows.items() if not rows]
    if empty:
        raise InputError(
            f"{path}: the {' and the '.join(empty)} part of {result.events:,} events would be empty; give more events, "
            "or move validation_from and test_from"
        )
