"""`ctrpipe predict`: raw rows of a file -> a server's probabilities."""

import pathlib
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pipeline.config import load_config
from serving.client import RestClient
from serving.layout import newest_version
from transforms.errors import InputError
from transforms.readers import LogReader, find_files
from transforms.spec import LogSpec

BATCH = 1000


def predict_rows(
    url: str, file: pathlib.Path, rows: int, model: pathlib.Path | None, config: pathlib.Path | None
) -> Iterator[tuple[int, float]]:
    """(0-based line, probability of the primary task) of the first good rows of the file."""
    path = find_files([str(file)])[0]
    with RestClient(url) as client:
        spec = _spec(client, model, config)
        for batch in _first_rows(LogReader(spec, labels=False), path, rows):
            columns = {name: _values(batch.rows[name]) for name in spec.feature_columns}
            outputs = client.predict(columns, signature_name="serving_raw")
            # With one output TF Serving leaves its name out.
            values = outputs if isinstance(outputs, list) else outputs[next(iter(spec.data.labels))]
            yield from zip(batch.lines.tolist(), values, strict=True)


def _spec(client: RestClient, model: pathlib.Path | None, config: pathlib.Path | None) -> LogSpec:
    """The description of the log: from a configuration, a model's folder, or the served model itself."""
    if config:
        return load_config(config).log_spec
    if model:
        version = newest_version(model) or model
        found = version / "assets.extra" / "log_spec.json"
        if not found.exists():
            raise InputError(f"{model}: no model of ctrpipe here (assets.extra/log_spec.json is absent)")
        return LogSpec.model_validate_json(found.read_text())
    try:
        answer = client.predict({"request": [""]}, signature_name="log_spec")
    except InputError as error:
        raise InputError(f"{error}; give --model or --config to say what the file looks like") from error
    return LogSpec.model_validate_json((answer["log_spec"] if isinstance(answer, dict) else answer)[0])


def _first_rows(reader: LogReader, path: str, rows: int):
    left = rows
    for batch in reader.read(path):
        for start in range(0, batch.rows.num_rows, BATCH):
            take = min(BATCH, left, batch.rows.num_rows - start)
            yield type(batch)(batch.path, batch.rows.slice(start, take), batch.lines[start : start + take], [])
            left -= take
            if not left:
                return


def _values(column: pa.Array) -> list:
    if pa.types.is_floating(column.type):
        return column.fill_null(float("nan")).to_numpy(zero_copy_only=False).astype(np.float32).tolist()
    return [value.decode("utf-8") for value in column.fill_null(b"").to_pylist()]
