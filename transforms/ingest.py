"""Raw log files -> splits of tf.Examples, dead letters and counts. A plain function; the pipeline wraps it."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from transforms.errors import InputError
from transforms.readers import LogBatch, LogReader, Reject
from transforms.spec import LogSpec, Split

SPLITS = ("train", "validation", "test")
DEAD_LETTERS_KEPT = 100_000


@dataclasses.dataclass
class IngestResult:
    """Counts of one ingestion: `rows` and `positives` (of the primary label) per split, and malformed rows."""

    rows: dict[str, int]
    positives: dict[str, int]
    rejected: int
    reasons: dict[str, int]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=1)


def ingest(
    spec: LogSpec,
    files: list[str],
    seed: int,
    split_folders: dict[str, pathlib.Path],
    dead_letter: pathlib.Path,
    progress: Callable[[str], None] = lambda text: None,
) -> IngestResult:
    """Reads the log twice: once to count and check rows, once to write them.

    Args:
        spec: The description of the log.
        files: Its files, in log order.
        seed: Seed of `split.by: hash`.
        split_folders: An existing folder per name of SPLITS, to hold `data_tfrecord-00000-of-00001.gz`.
        dead_letter: Folder for `rejects.jsonl`, one object per malformed row: file, line, reason, text.
        progress: Told how far each of the two passes is, after every few megabytes.

    Raises:
        InputError: a file cannot be read, too many rows are malformed, a split is empty, the labels of the training
            rows are of one class only, or a feature is missing in all of them.
    """
    reader = LogReader(spec)
    total = _check_log(reader, files, spec.data.max_bad_row_rate, dead_letter, progress)
    result = IngestResult(dict.fromkeys(SPLITS, 0), dict.fromkeys(SPLITS, 0), total.rejected, total.reasons)
    present = {name: 0 for name in spec.feature_columns}
    label = spec.label_columns[0]
    done = 0
    with contextlib.ExitStack() as stack:
        writers = {name: stack.enter_context(_ExampleWriter(folder)) for name, folder in split_folders.items()}
        for batch in _read_all(reader, files):
            parts = _assign(spec.data.split, batch, done, total.rows, seed)
            for index, name in enumerate(SPLITS):
                rows = batch.rows.filter(pa.array(parts == index))
                if not rows.num_rows:
                    continue
                writers[name].write(_features_only(rows, spec))
                result.rows[name] += rows.num_rows
                result.positives[name] += int(pc.sum(rows[label]).as_py())
                if name == "train":
                    for column in present:
                        present[column] += rows.num_rows - rows[column].null_count
            done += batch.rows.num_rows
            progress(f"{done:,} of {total.rows:,} rows written")
    _check_splits(result, present, label)
    return result


def _read_all(reader: LogReader, files: list[str]) -> Iterator[LogBatch]:
    for file in files:
        yield from reader.read(file)


@dataclasses.dataclass(frozen=True)
class _Total:
    rows: int
    rejected: int
    reasons: dict[str, int]


def _check_log(
    reader: LogReader, files: list[str], max_rate: float, dead_letter: pathlib.Path, progress: Callable[[str], None]
) -> _Total:
    rows = rejected = 0
    reasons: dict[str, int] = {}
    first: tuple[str, Reject] | None = None
    dead_letter.mkdir(parents=True, exist_ok=True)
    with open(dead_letter / "rejects.jsonl", "w") as letters:
        for batch in _read_all(reader, files):
            rows += batch.rows.num_rows
            for reject in batch.rejects:
                first = first or (batch.path, reject)
                reason = reject.reason.split("'")[0].split(", found")[0].strip()
                reasons[reason] = reasons.get(reason, 0) + 1
                rejected += 1
                if rejected <= DEAD_LETTERS_KEPT:
                    letter = {"file": batch.path, "line": reject.line, "reason": reject.reason, "text": reject.text}
                    letters.write(json.dumps(letter) + "\n")
            progress(f"{rows + rejected:,} rows read")
    if first and rejected > max_rate * (rows + rejected):
        file, reject = first
        raise InputError(
            f"{file}: {rejected} of {rows + rejected} rows are malformed, above data.max_bad_row_rate {max_rate}; "
            f"the first is line {reject.line + 1}: {reject.reason}; all are in {dead_letter}"
        )
    return _Total(rows, rejected, reasons)


def _assign(split: Split, batch: LogBatch, start: int, total: int, seed: int) -> np.ndarray:
    """Each row's index into SPLITS; `start` is the number of the batch's first good row in the log."""
    number = start + np.arange(batch.rows.num_rows)
    if split.by == "time":
        values = batch.rows[str(split.column)].cast(pa.string())
        late = pc.fill_null(pc.greater_equal(values, str(split.validation_from)), False).cast(pa.int8())
        last = pc.fill_null(pc.greater_equal(values, str(split.test_from)), False).cast(pa.int8())
        return late.to_numpy(zero_copy_only=False) + last.to_numpy(zero_copy_only=False)
    place = number / total if split.by == "order" else _uniform(number, seed)
    test_from = 1 - split.test
    # Round to a row count, so that 0.2 of 60,000 rows is 12,000 and not 11,999 by a rounding error.
    if split.by == "order":
        bounds = [round((test_from - split.validation) * total), round(test_from * total)]
        return np.searchsorted(bounds, number, side="right")
    return np.searchsorted([test_from - split.validation, test_from], place, side="right")


def _uniform(number: np.ndarray, seed: int) -> np.ndarray:
    """Splitmix64 of the row's number, as float64 in [0, 1)."""
    with np.errstate(over="ignore"):
        z = number.astype(np.uint64) + np.uint64(seed + 1) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)) * 2.0**-53


def _features_only(rows: pa.RecordBatch, spec: LogSpec) -> pa.RecordBatch:
    names = spec.feature_columns + spec.label_columns
    return pa.RecordBatch.from_arrays([rows[name] for name in names], names=names)


def to_examples(rows: pa.RecordBatch) -> list[bytes]:
    """Serialized tf.Examples; a null value is an absent feature."""
    from tfx_bsl.coders.example_coder import RecordBatchToExamplesEncoder

    arrays = [_as_lists(column) for column in rows.columns]
    return RecordBatchToExamplesEncoder().encode(pa.RecordBatch.from_arrays(arrays, names=rows.schema.names))


def _as_lists(values: pa.Array) -> pa.Array:
    valid = values.is_valid().to_numpy(zero_copy_only=False)
    offsets = np.concatenate([[0], np.cumsum(valid)]).astype(np.int64)
    mask = pa.array(~valid)
    return pa.LargeListArray.from_arrays(pa.array(offsets), values.drop_null(), mask=mask)


class _ExampleWriter(contextlib.AbstractContextManager):
    """Writes one gzip TFRecord file of tf.Examples, as TFX's Examples artifacts hold them."""

    def __init__(self, folder: pathlib.Path):
        import tensorflow as tf

        options = tf.io.TFRecordOptions(compression_type="GZIP", compression_level=1)
        self._writer: Any = tf.io.TFRecordWriter(str(folder / "data_tfrecord-00000-of-00001.gz"), options)

    def write(self, rows: pa.RecordBatch) -> None:
        for example in to_examples(rows):
            self._writer.write(example)

    def __exit__(self, *error: object) -> None:
        self._writer.close()


def _check_splits(result: IngestResult, present: dict[str, int], label: str) -> None:
    for name in SPLITS:
        if not result.rows[name]:
            raise InputError(f"The {name} split has no rows; give more data or change data.split")
    for name in ("train", "validation", "test"):
        if result.positives[name] in (0, result.rows[name]):
            only = int(result.positives[name] > 0)
            raise InputError(
                f"{label} is {only} in all {result.rows[name]} {name} rows; a model needs both classes: "
                "check the label column, give more data or change data.split"
            )
    absent = [column for column, count in present.items() if not count]
    if absent:
        raise InputError(
            f"Always missing in all {result.rows['train']} training rows: {', '.join(absent)}; "
            "remove it from features, or check the order of data.columns"
        )
