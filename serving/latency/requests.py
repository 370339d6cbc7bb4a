"""Builds requests of every kind that a served model accepts, from raw rows."""

import base64
import dataclasses
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2

from ctrpipe.common.errors import InputError
from ctrpipe.serving.assets import GoldenRows, read_log_spec
from ctrpipe.serving.latency.histories import with_history
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.logged_values import own_values
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

GRPC_PATH = "/tensorflow.serving.PredictionService/Predict"
BODIES = 8  # different bodies of a kind, sent in turn
MOST_BYTES = 8 << 20  # of all bodies of a kind

Arrays = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of request: its protocol (`rest` or `grpc`), signature, and title in the report."""

    protocol: str
    signature: str
    title: str


KINDS = {
    "rest_row": Kind("rest", "serving_raw", "REST, row JSON, raw columns"),
    "rest_columnar": Kind("rest", "serving_packed", "REST, columnar JSON, packed tensors"),
    "rest_b64": Kind("rest", "serving_default", "REST, base64 tf.Examples"),
    "grpc_packed": Kind("grpc", "serving_packed", "gRPC, packed tensors"),
    "grpc_examples": Kind("grpc", "serving_default", "gRPC, tf.Examples"),
}
SIGNATURES = ("serving_packed", "serving_default", "serving_raw")


class RequestRows:
    """Real rows as the inputs of each signature.

    Args:
        servable: The model. It also transforms the rows for `serving_packed`.
        spec: The description of the model's log.
        rows: Raw columns [N], null = missing.
    """

    def __init__(self, servable: Servable, spec: LogSpec, rows: pa.RecordBatch):
        self.count = rows.num_rows
        features = pa.RecordBatch.from_arrays([rows[name] for name in spec.feature_columns], names=spec.feature_columns)
        examples = np.array(to_examples(features), object)
        packed = servable.run("transform_features", {"examples": examples})
        self._inputs: dict[str, Arrays] = {
            "serving_raw": raw_arrays(rows, spec),
            "serving_default": {"examples": examples},
            "serving_packed": {name: np.asarray(packed[name]) for name in sorted(packed)},
        }

    def inputs(self, signature: str, rows: int) -> list[Arrays]:
        """Returns up to BODIES batches of `rows` rows each. Repeats rows if there are too few."""
        arrays = self._inputs[signature]
        return [{name: values[index] for name, values in arrays.items()} for index in self._batches(rows)]

    def bodies(self, kind: str, rows: int, model: str) -> list[bytes]:
        """Returns request bodies of `rows` rows each: at least one, until their total exceeds MOST_BYTES."""
        bodies: list[bytes] = []
        for inputs in self.inputs(KINDS[kind].signature, rows):
            bodies.append(_body(kind, inputs, model))
            if sum(map(len, bodies)) > MOST_BYTES:
                break
        return bodies

    def _batches(self, rows: int) -> Iterator[np.ndarray]:
        for start in range(0, max(rows, min(self.count, BODIES * rows)), rows):
            yield np.arange(start, start + rows) % self.count


def _body(kind: str, inputs: Arrays, model: str) -> bytes:
    signature = KINDS[kind].signature
    if KINDS[kind].protocol == "grpc":
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = model, signature
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
        return bytes(request.SerializeToString())
    body: dict[str, Any] = {"signature_name": signature}
    if kind == "rest_columnar":
        body["inputs"] = {name: values.tolist() for name, values in inputs.items()}
    elif kind == "rest_b64":
        body["instances"] = [{"b64": base64.b64encode(example).decode()} for example in inputs["examples"]]
    else:
        columns = {name: _values(values) for name, values in inputs.items()}
        body["instances"] = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return json.dumps(body, separators=(",", ":")).encode()  # writes NaN as a token, which TF Serving accepts


def _values(values: np.ndarray) -> list[Any]:
    if values.dtype == np.float32:
        return [float(str(value)) for value in values]  # the shortest decimal form, as clients write it
    return [value.decode() for value in values.tolist()]


def read_rows(
    version: pathlib.Path, servable: Servable, log: pathlib.Path | str | None, most: int, history: int | None = None
) -> RequestRows:
    """Returns the first good rows of a log, at most `most`, or the golden rows without a log.

    With `history`, every row's history has this number of items (see `with_history`).

    Raises:
        InputError: the log cannot be read or has no good row, or ctrpipe did not export the model.
    """
    spec = read_log_spec(version)
    missing = [name for name in (*SIGNATURES, "transform_features") if name not in servable.signatures]
    if missing:
        raise InputError(f"{version}: has no signature {missing[0]}; the benchmark takes models that ctrpipe exports")
    if log:
        rows = _log_rows(log, spec, own_values(version, spec), most)
    else:
        rows = _golden_rows(asset_path(version, Asset.GOLDEN), spec)
    return RequestRows(servable, spec, with_history(rows, spec, history) if history else rows)


def _log_rows(log: pathlib.Path | str, spec: LogSpec, own: OwnValues, most: int) -> pa.RecordBatch:
    batches: list[pa.RecordBatch] = []
    for batch in LogReader(spec, labels=False, own=own).read(find_files([str(log)])[0]):
        batches.append(batch.rows.slice(0, most - sum(rows.num_rows for rows in batches)))
        if sum(rows.num_rows for rows in batches) >= most:
            break
    table = pa.Table.from_batches(batches).combine_chunks()
    if not table.num_rows:
        raise InputError(f"{log}: no good row in it; check --data and the log's format")
    return table.to_batches()[0]


def _golden_rows(path: pathlib.Path, spec: LogSpec) -> pa.RecordBatch:
    try:
        raw = GoldenRows.load(path).raw
        columns = {name: raw[name] for name in spec.feature_columns}
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{path}: this model contains no rows; give --data") from error
    arrays = {
        name: pa.array(values, pa.float32(), mask=np.isnan(values))
        if values.dtype.kind == "f"
        else pa.array([value or None for value in values.tolist()], pa.binary())
        for name, values in columns.items()
    }
    return pa.RecordBatch.from_pydict(arrays)
