"""`ctrpipe predict`: raw rows of a file -> a server's probabilities."""

import pathlib
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pydantic

from pipeline.config import load_config
from serving.client import RestClient
from serving.layout import find_version, read_log_spec
from transforms.errors import InputError
from transforms.readers import LogBatch, LogReader, Reject, find_files
from transforms.spec import LogSpec

BATCH = 1000


def predict_rows(
    url: str,
    file: pathlib.Path,
    rows: int,
    model: pathlib.Path | None,
    config: pathlib.Path | None,
    passed_over: Callable[[Reject], None] = lambda reject: None,
) -> Iterator[tuple[int, float]]:
    """(0-based line, probability of the primary task) of the first good rows of the file.

    Args:
        url: The model at the server: http://HOST:PORT/v1/models/NAME.
        file: A raw log.
        rows: How many rows at most.
        model: The served model's folder, to read the log's format from.
        config: The run's configuration, instead; with neither, the server is asked.
        passed_over: Told each malformed row that lies before or between the rows.

    Raises:
        InputError: the file, the configuration, the model or the server's answer cannot be used.
    """
    path = find_files([str(file)])[0]
    with RestClient(url) as client:
        spec = _spec(client, model, config)
        for batch in _first_rows(LogReader(spec, labels=False), path, rows):
            for reject in batch.rejects:
                passed_over(reject)
            if not len(batch.lines):
                continue
            columns = {name: _values(batch.rows[name]) for name in spec.feature_columns}
            outputs = client.predict(columns, signature_name="serving_raw")
            yield from zip(batch.lines.tolist(), _probabilities(url, outputs, spec, len(batch.lines)), strict=True)


def _probabilities(url: str, outputs: object, spec: LogSpec, rows: int) -> list[float]:
    task = next(iter(spec.data.labels))
    # With one output TF Serving leaves its name out.
    values = outputs.get(task) if isinstance(outputs, dict) else outputs
    if not isinstance(values, list) or len(values) != rows or not all(isinstance(v, float | int) for v in values):
        raise InputError(f"{url}: the answer holds no probability of '{task}' for each row; is this the right model?")
    return values


def _spec(client: RestClient, model: pathlib.Path | None, config: pathlib.Path | None) -> LogSpec:
    """The description of the log: from a configuration, a model's folder, or the served model itself."""
    if config:
        return load_config(config).log_spec
    if model:
        return read_log_spec(find_version(model))
    hint = "give --model or --config to say what the file looks like"
    try:
        answer = client.predict({"request": [""]}, signature_name="log_spec")
    except InputError as error:
        if '"log_spec"' in str(error):  # the model has no such signature
            raise InputError(f"{error}; {hint}") from error
        raise
    try:
        return LogSpec.model_validate_json((answer["log_spec"] if isinstance(answer, dict) else answer)[0])
    except (pydantic.ValidationError, LookupError, TypeError) as error:
        raise InputError(f"{client.url}: the server does not say what the model's log looks like; {hint}") from error


def _first_rows(reader: LogReader, path: str, rows: int) -> Iterator[LogBatch]:
    """The first good rows in batches of one request, each with the malformed rows between its first and last one."""
    left = rows
    for batch in reader.read(path):
        rejects = list(batch.rejects)
        for start in range(0, batch.rows.num_rows, BATCH):
            take = min(BATCH, left, batch.rows.num_rows - start)
            lines = batch.lines[start : start + take]
            before = [reject for reject in rejects if reject.line < lines[-1]]
            yield LogBatch(batch.path, batch.rows.slice(start, take), lines, before)
            rejects = rejects[len(before) :]
            left -= take
            if not left:
                return
        if rejects:
            yield LogBatch(batch.path, batch.rows.slice(0, 0), batch.lines[:0], rejects)


def _values(column: pa.Array) -> list:
    if pa.types.is_floating(column.type):
        return column.fill_null(float("nan")).to_numpy(zero_copy_only=False).astype(np.float32).tolist()
    return [value.decode("utf-8") for value in column.fill_null(b"").to_pylist()]
