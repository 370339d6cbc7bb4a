"""Converts logged requests (`serve --request_log`) back into rows of a raw log."""

import collections
import dataclasses
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.common.files import atomic_path, by_number
from ctrpipe.serving.server.grpc_answers import serialized
from ctrpipe.serving.server.grpc_tensors import to_array
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import is_list
from ctrpipe.transforms.log.vectors import as_lists, from_array

BATCH_ROWS = 1 << 16  # in a row group
REQUEST_TIME, MODEL_VERSION, SERVED = "request_time", "model_version", "served_"
EXAMPLES = "examples"
_DESCRIPTION = "log_spec"  # the signature that `ctrpipe predict` asks for the columns of the log

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass
class Written:
    """Counts of the logged requests that were written and skipped.

    Attributes:
        files: The number of files read.
        requests: The number of requests whose rows were written.
        rows: The number of rows written.
        skipped: By signature, the number of requests without raw columns: packed tensors, or another model's inputs.
            Requests for the description of the log are not counted.
    """

    files: int = 0
    requests: int = 0
    rows: int = 0
    skipped: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)


def write_rows(folder: pathlib.Path, spec: LogSpec, output: pathlib.Path) -> Written:
    """Writes the rows of all requests with raw columns to one Parquet file, in file order.

    The file has the columns of the log, and in addition `request_time` (seconds since 1970), `model_version`, and
    `served_<task>`, the probability in the response.

    Args:
        folder: The request log of one model: FOLDER/MODEL of --request_log. Files still being written (`.part`) are
            skipped.
        spec: The description of the log that the model was trained on.
        output: The Parquet file to write.

    Raises:
        InputError: the folder has no files, a file is damaged, or no request has raw columns.
    """
    files = sorted(folder.glob("*.tfrecord"), key=by_number)
    if not files:
        if any(folder.glob("*.part")):
            raise InputError(
                f"{folder}: its file is not complete yet; wait for a minute since its first request, or end the server"
            )
        raise InputError(
            f"{folder}: no *.tfrecord in it; give FOLDER/MODEL of ctrpipe serve --request_log=FOLDER, which logs one "
            "request of 100 without --sampling_rate"
        )
    written = Written(files=len(files))
    with atomic_path(output) as path, pa.parquet.ParquetWriter(path, _schema(spec)) as writer:
        for table in _tables(files, spec, written):
            writer.write_table(table)
        if not written.rows:
            signatures = ", ".join(sorted(written.skipped)) or "none"
            raise InputError(
                f"{folder}: no request has the columns of the log; signatures asked: {signatures}; ask serving_raw or "
                "send examples"
            )
    return written


def _schema(spec: LogSpec) -> pa.Schema:
    numbers = [(name, pa.float32()) for name in spec.numeric_columns]
    texts = [(name, pa.binary()) for name in spec.text_columns]
    vectors = [(name, pa.list_(pa.float32())) for name in spec.vector_lengths]
    served = [(SERVED + task, pa.float32()) for task in spec.data.labels]
    return pa.schema([*numbers, *texts, *vectors, (REQUEST_TIME, pa.int64()), (MODEL_VERSION, pa.int64()), *served])


def _tables(files: list[pathlib.Path], spec: LogSpec, written: Written) -> Iterator[pa.Table]:
    pending: list[Arrays] = []
    rows = 0
    for file in files:
        for record in _records(file):
            arrays = _rows(record, spec)
            if arrays is None:
                signature = record.log_metadata.model_spec.signature_name
                written.skipped.update([signature] if signature != _DESCRIPTION else [])
                continue
            pending.append(arrays)
            rows += len(arrays[REQUEST_TIME])
            written.requests += 1
            if rows >= BATCH_ROWS:
                yield _table(pending, spec)
                written.rows += rows
                pending, rows = [], 0
    if pending:
        yield _table(pending, spec)
        written.rows += rows


def _records(file: pathlib.Path) -> Iterator[prediction_log_pb2.PredictionLog]:
    try:
        for number, record in enumerate(tf.data.TFRecordDataset(str(file)).as_numpy_iterator(), 1):
            try:
                yield prediction_log_pb2.PredictionLog.FromString(record)
            except DecodeError as error:
                raise InputError(f"{file}: record {number} is not a PredictionLog; remove the file") from error
    except tf.errors.DataLossError as error:
        raise InputError(f"{file}: damaged, or not a TFRecord file; remove it") from error


def _rows(record: prediction_log_pb2.PredictionLog, spec: LogSpec) -> Arrays | None:
    """Returns the columns [N, ...] of a request, or None if it has no raw columns."""
    kind = record.WhichOneof("log_type")
    if kind is None:
        return None
    logged = getattr(record, kind)
    columns = (
        _predicted(logged.request, spec) if kind == "predict_log" else _examples(serialized(logged.request.input), spec)
    )
    if columns is None:
        return None
    size = max(map(len, columns.values()))
    columns = {
        name: np.broadcast_to(array, (size, *array.shape[1:])) for name, array in columns.items()
    }  # candidates share a text
    columns[REQUEST_TIME] = np.full(size, record.log_metadata.timestamp_secs, np.int64)
    columns[MODEL_VERSION] = np.full(size, record.log_metadata.model_spec.version.value, np.int64)
    for task in spec.data.labels:
        columns[SERVED + task] = _served(kind, logged.response, task, size)
    return columns


def _predicted(request: predict_pb2.PredictRequest, spec: LogSpec) -> Arrays | None:
    if set(request.inputs) == {EXAMPLES}:
        return _examples(to_array(request.inputs[EXAMPLES]).tolist(), spec)
    if set(request.inputs) != set(spec.feature_columns):
        return None
    return {name: to_array(proto) for name, proto in request.inputs.items()}


def _examples(examples: list[bytes], spec: LogSpec) -> Arrays:
    """Parses serialized tf.Examples like the graph: an absent value is NaN or b""."""
    features = {name: tf.io.FixedLenFeature([], tf.float32, float("nan")) for name in spec.numeric_columns}
    features |= {name: tf.io.FixedLenFeature([], tf.string, "") for name in spec.text_columns}
    lengths = spec.vector_lengths
    features |= {
        name: tf.io.FixedLenFeature([size], tf.float32, [float("nan")] * size) for name, size in lengths.items()
    }
    return {name: values.numpy() for name, values in tf.io.parse_example(examples, features).items()}


def _served(kind: str, response: Any, task: str, size: int) -> np.ndarray:
    """Returns a task's probabilities in the response, [N], or NaN if they are absent."""
    if kind == "predict_log" and task in response.outputs:
        return to_array(response.outputs[task])
    if kind == "regress_log":
        return np.array([one.value for one in response.result.regressions], np.float32)
    return np.full(size, np.nan, np.float32)


def _table(parts: list[Arrays], spec: LogSpec) -> pa.Table:
    schema = _schema(spec)
    columns = []
    for field in schema:
        values = np.concatenate([part[field.name] for part in parts])
        if is_list(field.type):
            columns.append(as_lists(from_array(values, ~np.isnan(values).any(axis=1))))
            continue
        is_missing = values == b"" if field.type == pa.binary() else np.isnan(values)
        columns.append(pa.array(values, field.type, mask=is_missing))
    return pa.Table.from_arrays(columns, schema=schema)
