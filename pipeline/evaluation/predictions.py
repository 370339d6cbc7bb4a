"""What models answer to the rows of a payload, as TF Serving would: the C++ loader, the signature `serving_raw`."""

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from tensorflow.core.framework import types_pb2

from common.errors import InputError
from common.processes import Workers
from serving.loader import Servable
from transforms.log.payload import PART_ROWS, payload_rows, plain, read_payload
from transforms.log.raw_arrays import number_array, text_array

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
            for task, probability in _answer(_load(path), rows).items():
                columns[prediction_column(name, task)] = pa.array(probability, pa.float32())
        return pa.RecordBatch.from_pydict(columns)


@functools.cache
def _load(path: pathlib.Path) -> Servable:
    """Loaded once in a process, not for each part."""
    return Servable(path)


def _answer(servable: Servable, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
    """Probabilities [N] by task."""
    inputs = _inputs(servable, rows)
    parts = []
    for start in range(0, rows.num_rows, CHUNK_ROWS):
        chunk = {name: values[start : start + CHUNK_ROWS] for name, values in inputs.items()}
        parts.append(servable.run("serving_raw", chunk))
    return {task: np.concatenate([part[task] for part in parts]) for task in parts[0]}


def _inputs(servable: Servable, rows: pa.RecordBatch) -> dict[str, np.ndarray]:
    """By the signature, not by the log's description: an earlier model may have been trained on other columns."""
    arrays = {}
    for name, tensor in servable.signatures["serving_raw"].inputs.items():
        is_number = tensor.dtype == types_pb2.DT_FLOAT
        if name in rows.schema.names:
            values = rows[name]
        else:
            values = pa.nulls(rows.num_rows, pa.float32() if is_number else pa.binary())
        if is_number != pa.types.is_floating(values.type):
            kind, other = ("a number", "text") if is_number else ("text", "a number")
            raise InputError(
                f"{servable.path}: this model takes the column {name} as {kind}, in the log's description it is "
                f"{other}; choose another --output or serving.model_name, or describe the column as before"
            )
        arrays[name] = number_array(values) if is_number else text_array(values)
    return arrays
