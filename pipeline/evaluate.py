"""Exact metrics of an exported model on raw examples, overall and by slice."""

import glob
import pathlib
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

from models.metrics import summarise
from serving.loader import Servable
from transforms.schema import raw_schema
from transforms.spec import LogSpec

MAX_SLICE_VALUES = 20


def read_examples(pattern: str, batch_size: int = 4096):
    """Batches of serialized tf.Examples."""
    files = sorted(glob.glob(pattern))
    for batch in tf.data.TFRecordDataset(files, compression_type="GZIP").batch(batch_size):
        yield batch.numpy()


def predict_examples(model: pathlib.Path, pattern: str) -> dict[str, np.ndarray]:
    """Probabilities per task, float32 [N], by the C++ loader through `serving_default`."""
    servable = Servable(model)
    try:
        parts = [servable.run("serving_default", {"examples": batch}) for batch in read_examples(pattern)]
    finally:
        servable.close()
    return {task: np.concatenate([part[task] for part in parts]) for task in parts[0]}


def read_columns(pattern: str, spec: LogSpec, names: list[str]) -> dict[str, list[Any]]:
    """Columns of raw examples, None where a value is missing."""
    schema = raw_schema(spec)
    del schema.tensor_representation_group[""]
    decoder = ExamplesToRecordBatchDecoder(schema.SerializeToString())
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for batch in read_examples(pattern):
        rows: pa.RecordBatch = decoder.DecodeBatch(batch.tolist())
        for name in names:
            values = rows.column(rows.schema.get_field_index(name)).to_pylist()
            columns[name] += [value[0] if value else None for value in values]
    return columns


def evaluate(
    model: pathlib.Path, baseline: tuple[str, pathlib.Path] | None, pattern: str, spec: LogSpec, slices: list[str]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The metrics of a model (and of the baseline beside it) on the examples of `pattern`.

    Returns:
        The contents of metrics.json except what the gates decide, and the columns of predictions.parquet.
    """
    columns = read_columns(pattern, spec, [*spec.label_columns, *slices])
    probabilities = predict_examples(model, pattern)
    tasks = {}
    for task, column in spec.data.labels.items():
        tasks[task] = summarise(np.asarray(columns[column], np.float32), probabilities[task])
    primary = next(iter(spec.data.labels))
    label = np.asarray(columns[spec.data.labels[primary]], np.float32)
    predictions = {"label": label, "probability": probabilities[primary]}
    metrics: dict[str, Any] = {**tasks[primary], "tasks": tasks, "slices": {}, "baseline": None}
    for name in slices:
        metrics["slices"][name] = _by_value(columns[name], label, probabilities[primary])
    if baseline:
        name, path = baseline
        predictions["baseline_probability"] = predict_examples(path, pattern)[primary]
        metrics["baseline"] = {"name": name, **summarise(label, predictions["baseline_probability"])}
    return metrics, predictions


def _by_value(values: list[Any], label: np.ndarray, probability: np.ndarray) -> dict[str, Any]:
    """Metrics of the most frequent values of a slicing column."""
    texts = np.array(["(missing)" if value is None else _text(value) for value in values], object)
    found, counts = np.unique(texts, return_counts=True)
    frequent = found[np.lexsort((found, -counts))][:MAX_SLICE_VALUES]
    return {value: summarise(label[texts == value], probability[texts == value]) for value in frequent}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else f"{value:g}"
