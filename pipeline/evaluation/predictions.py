"""What models answer to the rows of a payload, as TF Serving would: the C++ loader, the signature `serving_raw`."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.parquet

from common.processes import Workers
from serving.loader import Servable
from serving.scoring.rows import RAW, raw_batches, run_batches
from transforms.log.payload import PART_ROWS, payload_rows, plain, read_payload

# Rows that a model answers at once.
CHUNK_ROWS = 1 << 13
# What a row takes in one process, measured on Criteo's 39 columns and DeepFM, and what a new process takes before its
# first row, half as much again: one process keeps two cores busy, so that more of them gain less than their number.
PREDICT_SECONDS, LOAD_SECONDS = 1.2e-5, 12.0


def prediction_column(model: str, task: str) -> str:
    return f"{model}.{task}"


def predict(
    models: Mapping[str, pathlib.Path],
    files: Sequence[pathlib.Path],
    columns: Sequence[str],
    folder: pathlib.Path,
    workers: Workers,
    progress: Callable[[str], None] = lambda text: None,
) -> list[pathlib.Path]:
    """Writes a file for each part of a payload, rows in the part's order.

    Args:
        models: Name in `prediction_column`, and the SavedModel's folder. Columns that a model takes and the payload
            does not have are missing values to it.
        files: The parts.
        columns: What else of the payload is written.
        folder: Where the files go, as `<part>.parquet`.
        workers: Who predicts.
        progress: Told how many parts are done.

    Returns:
        The files, in the order of the parts; each has `columns`, then a float32 column per model and task.

    Raises:
        InputError: a model cannot be loaded, or takes a column as text that is a number in the payload, or vice versa.
    """
    folder.mkdir(parents=True, exist_ok=True)
    work = _PredictPart(tuple(models.items()), tuple(columns), folder)
    seconds = payload_rows(files) * PREDICT_SECONDS * len(models)
    try:
        return workers.map(
            work,
            list(files),
            seconds,
            LOAD_SECONDS,
            lambda done: progress(f"{done} of {len(files)} parts predicted"),
        )
    finally:
        _load.cache_clear()


@dataclasses.dataclass(frozen=True)
class _PredictPart:
    models: tuple[tuple[str, pathlib.Path], ...]
    columns: tuple[str, ...]
    folder: pathlib.Path

    def __call__(self, part: pathlib.Path) -> pathlib.Path:
        batches = [self._predict(rows) for rows in read_payload([part], as_dictionaries=True)]
        path = self.folder / f"{part.stem}.parquet"
        pa.parquet.write_table(pa.Table.from_batches(batches), path, row_group_size=PART_ROWS)
        return path

    def _predict(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: plain(rows[name]) for name in self.columns}
        for name, path in self.models:
            servable = _load(path)
            batches = raw_batches(servable, rows, CHUNK_ROWS)
            tasks = sorted(servable.signatures[RAW].outputs)
            for task, probability in run_batches(servable, RAW, batches, tasks).items():
                columns[prediction_column(name, task)] = pa.array(probability, pa.float32())
        return pa.RecordBatch.from_pydict(columns)


@functools.cache
def _load(path: pathlib.Path) -> Servable:
    """Loads a model once in a process, not for each part."""
    return Servable(path)
