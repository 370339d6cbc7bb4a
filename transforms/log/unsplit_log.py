"""Writes a raw log as a payload without splits, for comparison with another log."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.files import FileState, Range, check_states
from ctrpipe.transforms.log.payload import PayloadWriter, payload_schema
from ctrpipe.transforms.log.readers import BYTES_PER_SECOND, LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec


@dataclasses.dataclass(frozen=True)
class Counts:
    """Numbers of good and malformed rows. `first` is the file, line and reason of the first malformed row."""

    rows: int
    rejected: int
    first: str


@dataclasses.dataclass(frozen=True)
class _RangeToWrite:
    spec: LogSpec
    range: Range
    labels: bool
    folder: pathlib.Path
    number: int


def write_whole_log(
    spec: LogSpec,
    files: Sequence[str],
    labels: bool,
    folder: pathlib.Path,
    workers: Workers,
    states: Mapping[str, FileState] | None = None,
) -> Counts:
    """Writes the good rows of a log, range by range.

    Args:
        spec: The description of the log.
        files: The files of the log.
        labels: Whether rows must have labels; if False, the payload has none.
        folder: An existing, empty folder for the payload.
        workers: Run the work.
        states: See ctrpipe.transforms.log.ingest.ingest.

    Raises:
        InputError: a file cannot be read or has changed, or too many rows are malformed.
    """
    ranges = plan(list(files), spec, labels, workers)
    check_states(ranges, states or {})
    todo = [_RangeToWrite(spec, part, labels, folder, number) for number, part in enumerate(ranges)]
    results = workers.map(_write, todo, sum(part.size for part in ranges) / BYTES_PER_SECOND)
    rows, rejected = sum(counts.rows for counts in results), sum(counts.rejected for counts in results)
    first = next((counts.first for counts in results if counts.first), "")
    if rejected > spec.data.max_bad_row_rate * (rows + rejected) or not rows:
        raise InputError(
            f"{first}; {rejected} of {rows + rejected} rows are malformed, above data.max_bad_row_rate "
            f"{spec.data.max_bad_row_rate}; is this the log that the configuration describes?"
        )
    return Counts(rows, rejected, first)


def _write(part: _RangeToWrite) -> Counts:
    schema = payload_schema(part.spec)
    names = part.spec.feature_columns + (part.spec.label_columns if part.labels else [])
    rows = rejected = 0
    first = ""
    with PayloadWriter(part.folder, f"{part.number:06d}", pa.schema([schema.field(name) for name in names])) as writer:
        for batch in LogReader(part.spec, part.labels).read_range(part.range):
            writer.write(batch.rows)
            rows += batch.rows.num_rows
            rejected += len(batch.rejects)
            if batch.rejects and not first:
                first = f"{batch.path}: {part.spec.line_or_row} {batch.rejects[0].line}: {batch.rejects[0].reason}"
    return Counts(rows, rejected, first)
