"""Counts the rows of each split of a log without writing them, as a check before a run."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.division import Division, find_division, order_bounds, span_of
from ctrpipe.transforms.log.files import text_size
from ctrpipe.transforms.log.group_sample import GroupSample
from ctrpipe.transforms.log.ingest import IngestResult, whole_clicks
from ctrpipe.transforms.log.ordering import Value
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

MOST_BYTES = 1 << 28  # of text or Parquet: a second or two
MOST_READ_BYTES = 1 << 24  # of text or Parquet, all columns: about a second


def is_countable(files: Sequence[str]) -> bool:
    """Returns whether the files are small enough to be read in a check.

    Raises:
        OSError: a file cannot be read.
    """
    return sum(map(text_size, files)) <= MOST_BYTES


def count_splits(spec: LogSpec, files: Sequence[str]) -> IngestResult:
    """Returns the counts of an ingestion without writing rows. Reads only the labels and the split column.

    Unlike an ingestion, it counts rows that are malformed in other columns.

    Raises:
        InputError: a file cannot be read, or the split column's values cannot be compared.
    """
    ranges = plan(list(files), spec)
    division = find_division(
        spec, files, ranges, spec.data.split.seed, lambda work, parts: [work(part) for part in parts]
    )
    reader = LogReader(spec, features=False, ordering=division.ordering)
    indices: list[np.ndarray] = []
    labels: list[np.ndarray] = []
    ends: dict[str, tuple[Value, Value]] = {}
    rejected = 0
    paths: list[tuple[str, int]] = []  # of each batch, and its rows
    groups = GroupSample()
    for part in ranges:
        file = files.index(part.path)
        for batch in reader.read_range(part):
            rejected += len(batch.rejects)
            labels.append(np.nan_to_num(batch.rows[spec.label_columns[0]]))  # a label may be missing
            paths.append((part.path, len(batch.lines)))
            if division.split.by == "group":
                assert isinstance(batch.keys, pa.Array)
                groups.add(batch.keys)
            if division.is_by_order:
                continue
            indices.append(division.indices(batch, file))
            for index in np.unique(indices[-1]) if division.ordering else ():
                span = span_of(pa.array(batch.keys).filter(pa.array(indices[-1] == index)))
                name = SPLITS[index]
                ends[name] = (min(ends.get(name, span)[0], span[0]), max(ends.get(name, span)[1], span[1]))
    positive = np.concatenate(labels) if labels else np.zeros(0)
    of_rows = np.concatenate(indices) if indices else np.zeros(0, int)
    if division.is_by_order:
        of_rows = _in_order(spec, len(positive))
    rows = {name: int((of_rows == index).sum()) for index, name in enumerate(SPLITS)}
    positives = {
        name: whole_clicks(float(positive[of_rows == index].sum()), rows[name]) for index, name in enumerate(SPLITS)
    }
    spans = {name: [division.shown(value) for value in values] for name, values in ends.items()}
    spans = spans or _files_of(division, of_rows, paths)
    of_column = [*groups.findings(), *division.far_apart(ends)]
    return IngestResult(rows, positives, {}, rejected, {}, spans, of_column, len(groups.rows))


def is_readable(files: Sequence[str]) -> bool:
    """Returns whether the files are small enough for all columns to be read in a check.

    Raises:
        OSError: a file cannot be read.
    """
    return sum(map(text_size, files)) <= MOST_READ_BYTES


def rows_of_splits(spec: LogSpec, files: Sequence[str]) -> dict[str, pa.Table]:
    """Returns the good rows of each split, with all columns.

    Raises:
        InputError: see `count_splits`.
    """
    ranges = plan(list(files), spec)
    division = find_division(
        spec, files, ranges, spec.data.split.seed, lambda work, parts: [work(part) for part in parts]
    )
    reader = LogReader(spec, ordering=division.ordering)
    batches: list[pa.RecordBatch] = []
    indices: list[np.ndarray] = []
    for part in ranges:
        for batch in reader.read_range(part):
            batches.append(batch.rows)
            if not division.is_by_order:
                indices.append(division.indices(batch, files.index(part.path)))
    if not batches:
        return {}
    table = pa.Table.from_batches(batches)
    of_rows = _in_order(spec, table.num_rows) if division.is_by_order else np.concatenate(indices)
    return {name: table.filter(pa.array(of_rows == index)) for index, name in enumerate(SPLITS)}


def _in_order(spec: LogSpec, rows: int) -> np.ndarray:
    """Returns each row's split as an index in SPLITS, `[N]`, for a split by order."""
    return np.repeat(np.arange(3), np.diff(order_bounds(spec.data.split, rows)))


def _files_of(division: Division, of_rows: np.ndarray, paths: Sequence[tuple[str, int]]) -> dict[str, list[str]]:
    """Returns the first and last file of each split; empty unless the split is by order or by files."""
    if division.split.by not in ("order", "files"):
        return {}
    stops = np.cumsum([rows for _, rows in paths])
    files: dict[str, list[str]] = {}
    for index, name in enumerate(SPLITS):
        places = np.flatnonzero(of_rows == index)
        if len(places):
            batches = np.searchsorted(stops, places[[0, -1]], side="right")
            files[name] = [paths[batch][0] for batch in batches]
    return files
