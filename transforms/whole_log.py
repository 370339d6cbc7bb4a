"""A raw log as a payload that is not split: what a comparison of two logs reads."""

import dataclasses
import os
import pathlib
from collections.abc import Sequence

import pyarrow as pa

from transforms.errors import InputError
from transforms.parallel import Workers
from transforms.payload import PayloadWriter, payload_schema
from transforms.readers import LogReader
from transforms.spec import LogSpec

# Of one process, 40 columns.
BYTES_PER_SECOND = 50e6
GZIP_BYTES_PER_SECOND = 15e6


@dataclasses.dataclass(frozen=True)
class Counts:
    """Good and malformed rows; `first` says what is wrong with the first malformed one, and where it is."""

    rows: int
    rejected: int
    first: str


@dataclasses.dataclass(frozen=True)
class _File:
    spec: LogSpec
    path: str
    labels: bool
    folder: pathlib.Path
    number: int


def write_whole_log(
    spec: LogSpec, files: Sequence[str], labels: bool, folder: pathlib.Path, workers: Workers
) -> Counts:
    """Writes the good rows of some files, one file or more of payload each.

    Args:
        spec: The description of the log.
        files: Its files.
        labels: Whether rows must have labels; without, the payload has none.
        folder: An existing, empty folder for the payload.
        workers: Where the files are read.

    Raises:
        InputError: a file cannot be read, or too many rows are malformed.
    """
    seconds = sum(os.path.getsize(file) / _bytes_per_second(file) for file in files)
    todo = [_File(spec, file, labels, folder, number) for number, file in enumerate(files)]
    found = workers.map(_write, todo, seconds)
    rows, rejected = sum(counts.rows for counts in found), sum(counts.rejected for counts in found)
    first = next((counts.first for counts in found if counts.first), "")
    if rejected > spec.data.max_bad_row_rate * (rows + rejected) or not rows:
        raise InputError(
            f"{first}; {rejected} of {rows + rejected} rows are malformed, above data.max_bad_row_rate "
            f"{spec.data.max_bad_row_rate}; is this the log that the configuration describes?"
        )
    return Counts(rows, rejected, first)


def _bytes_per_second(file: str) -> float:
    return GZIP_BYTES_PER_SECOND if file.endswith(".gz") else BYTES_PER_SECOND


def _write(file: _File) -> Counts:
    schema = payload_schema(file.spec)
    names = file.spec.feature_columns + (file.spec.label_columns if file.labels else [])
    rows = rejected = 0
    first = ""
    with PayloadWriter(file.folder, f"{file.number:05d}", pa.schema([schema.field(name) for name in names])) as writer:
        for batch in LogReader(file.spec, file.labels).read(file.path):
            writer.write(batch.rows)
            rows += batch.rows.num_rows
            rejected += len(batch.rejects)
            if batch.rejects and not first:
                first = f"{file.path}: line {batch.rejects[0].line + 1}: {batch.rejects[0].reason}"
    return Counts(rows, rejected, first)
