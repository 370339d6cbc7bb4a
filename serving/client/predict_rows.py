"""`ctrpipe predict`: sends raw rows of a file to a server, and yields the predicted probabilities."""

import pathlib
import random
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean
from ctrpipe.serving import explained
from ctrpipe.serving.assets import read_log_spec
from ctrpipe.serving.client import ModelClient
from ctrpipe.serving.client.model_client import Answer
from ctrpipe.serving.layout import find_version
from ctrpipe.serving.logged_values import own_values
from ctrpipe.transforms.log.batches import LogBatch, Reject
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

BATCH = 1000
EXPLAINED_BATCH = 50  # an explanation takes as long as a few predictions
# In a batch that joins requests of several clients, only the first row is answered. The other clients ask again.
_ASKS = 20
_PAUSE_SECONDS = 0.1


class Explanation(NamedTuple):
    """The explanation of a prediction.

    Attributes:
        logit, baseline: The logits of the row and of a row without values.
        columns: The contribution of each column to the logit. Their sum is `logit - baseline`.
        row: The raw row.
    """

    logit: float
    baseline: float
    columns: dict[str, float]
    row: pa.RecordBatch


class PredictedRow(NamedTuple):
    """The prediction for a row.

    Attributes:
        line: The row's line in the file, from 1. For Parquet, the row number.
        probability: The probability of the primary task.
        label: The version label that the request named, or None.
        version: The version that answered. None if the client does not ask for it.
        explanation: The explanation, or None if not requested.
    """

    line: int
    probability: float
    label: str | None
    version: int | None
    explanation: Explanation | None = None


def predict_rows(
    client: ModelClient,
    file: pathlib.Path | str,
    rows: int,
    model: pathlib.Path | None = None,
    spec: LogSpec | None = None,
    key: str | None = None,
    passed_over: Callable[[Reject], None] = lambda reject: None,
    explain: bool = False,
) -> Iterator[PredictedRow]:
    """Yields the predictions for the first good rows of a file, in order.

    If the client splits its requests between version labels, the rows are split.

    Args:
        client: A client of the model.
        file: A raw log.
        rows: The maximum number of rows.
        model: The folder of the served model, to read the log's format from.
        spec: The log's description, instead of `model`. With neither, it is requested from the server.
        key: A column. Rows with the same value go to the same version label.
        passed_over: Called with each skipped malformed row.
        explain: Whether to request explanations too.

    Raises:
        InputError: the file, the model or the server's response cannot be used, or the model has no
            explanations.
    """
    path = find_files([str(file)])[0]
    spec = spec or _spec(client, model)
    if key is not None and key not in spec.feature_columns:
        raise InputError(
            f"--key {key}: no column of the model; it has {', '.join(spec.feature_columns)}"
            f"{did_you_mean(key, spec.feature_columns)}"
        )
    own = own_values(find_version(model), spec) if model else OwnValues(spec, {}, has_log=False)
    reader = LogReader(spec, labels=False, own=own)
    for batch in _first_rows(reader, path, rows, EXPLAINED_BATCH if explain else BATCH):
        for reject in batch.rejects:
            passed_over(reject)
        if len(batch.lines):
            yield from _ask(client, spec, batch, key, explain)


def _ask(client: ModelClient, spec: LogSpec, batch: LogBatch, key: str | None, explain: bool) -> list[PredictedRow]:
    columns = raw_arrays(batch.rows, spec)
    predicted: list[PredictedRow] = []
    for label, rows in _by_label(client, batch.rows, key).items():
        asked = {name: values[rows] for name, values in columns.items()}
        answer = _explained(client, asked, label) if explain else client.ask(asked, "serving_raw", label=label)
        probabilities = _probabilities(client, answer.outputs, spec, len(rows))
        for place, row in enumerate(rows):
            explanation = _explanation(answer.outputs, place, batch.rows.slice(row, 1)) if explain else None
            line, probability = int(batch.lines[row]), float(probabilities[place])
            predicted.append(PredictedRow(line, probability, answer.label, answer.version, explanation))
    return sorted(predicted, key=lambda one: one.line)


def _explained(client: ModelClient, columns: dict[str, np.ndarray], label: str | None) -> Answer:
    try:
        return client.ask(columns, explained.SIGNATURE, label=label)
    except InputError as error:
        if explained.SIGNATURE in str(error):  # the model has no such signature
            raise InputError(f"{error}; the model explains its answers where serving.explain is true") from error
        raise


def _explanation(outputs: dict[str, np.ndarray], place: int, row: pa.RecordBatch) -> Explanation:
    columns = {name: float(values[place]) for name, values in explained.attributions(outputs).items()}
    logit, baseline = (float(outputs[name][place]) for name in (explained.LOGIT, explained.BASELINE_LOGIT))
    return Explanation(logit, baseline, columns, row)


def _by_label(client: ModelClient, rows: pa.RecordBatch, key: str | None) -> dict[str | None, np.ndarray]:
    """Returns the row numbers for each version label. The key None leaves the choice to the client."""
    if client.split is None:
        return {None: np.arange(rows.num_rows)}
    keys = [None] * rows.num_rows if key is None else rows[key].to_pylist()
    labels = np.array([client.split.choose(value) for value in keys])
    return {str(label): np.flatnonzero(labels == label) for label in np.unique(labels)}


def _probabilities(client: ModelClient, outputs: dict[str, np.ndarray], spec: LogSpec, rows: int) -> np.ndarray:
    task = next(iter(spec.data.labels))
    values = outputs.get(task)
    if values is None or values.shape != (rows,) or values.dtype.kind not in "fi":
        message = f"the answer holds no probability of '{task}' for each row; is this the right model?"
        raise InputError(f"{client.address}: {message}")
    return values


def _described(client: ModelClient) -> dict[str, np.ndarray]:
    """Returns the outputs of the signature log_spec. With --enable_batching, the server may need several requests."""
    for _ in range(_ASKS):
        outputs = client.predict({"request": [""]}, signature_name="log_spec")
        texts = np.ravel(outputs.get("log_spec", ()))
        if not texts.size or any(texts):
            break
        time.sleep(random.uniform(0, _PAUSE_SECONDS))
    return outputs


def _spec(client: ModelClient, model: pathlib.Path | None) -> LogSpec:
    """Returns the log's description: from a model's folder, or from the served model."""
    if model:
        return read_log_spec(find_version(model))
    hint = "give --model or --config to say what the file looks like"
    try:
        outputs = _described(client)
    except InputError as error:
        if "log_spec" in str(error):  # the model has no such signature
            raise InputError(f"{error}; {hint}") from error
        raise
    try:
        return LogSpec.of_model(outputs["log_spec"][0])
    except (ValueError, LookupError, TypeError) as error:
        raise InputError(
            f"{client.address}: the server does not return the description of the model's log; {hint}"
        ) from error


def _first_rows(reader: LogReader, path: str, rows: int, size: int) -> Iterator[LogBatch]:
    """Yields the first good rows in batches of one request each.

    A batch also holds the malformed rows before its last row.
    """
    left = rows
    for batch in reader.read(path):
        rejects = list(batch.rejects)
        for start in range(0, batch.rows.num_rows, size):
            take = min(size, left, batch.rows.num_rows - start)
            lines = batch.lines[start : start + take]
            before = [reject for reject in rejects if reject.line < lines[-1]]
            yield LogBatch(batch.path, batch.rows.slice(start, take), lines, before)
            rejects = rejects[len(before) :]
            left -= take
            if not left:
                return
        if rejects:
            yield LogBatch(batch.path, batch.rows.slice(0, 0), batch.lines[:0], rejects)
