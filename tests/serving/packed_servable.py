"""A servable of ctrpipe's export, for a log with every kind of column and two tasks, made in a few seconds."""

import pathlib
from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import tensorflow_transform as tft

from ctrpipe.common.processes import Workers
from ctrpipe.models import FeatureMap
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.tensorflow_learner import make_learner
from ctrpipe.serving.calibration import FittedCalibration
from ctrpipe.serving.export.export import export
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.spec import LogSpec
from tests.shared_folders import SharedFolder

VERSION = "models/1"
SPEC = LogSpec.model_validate(
    {
        "data": {
            "columns": ["click", "buy", "n1", "n2", "n3", "c1", "c2", "c3", "tags", "hour"],
            "labels": {"ctr": "click", "cvr": "buy"},
        },
        "features": [
            {"kind": "numeric", "columns": ["n1"]},
            {"kind": "categorical", "columns": ["c1", "c2"], "min_count": 2, "oov_buckets": 3},
            {"kind": "numeric", "columns": ["n2"], "transform": "standardize"},
            {"kind": "multivalent", "columns": ["tags"], "max_length": 3},
            {"kind": "numeric", "columns": ["n3"], "transform": "quantile_normalize"},
            {"kind": "time", "columns": ["hour"]},
            {"kind": "categorical", "columns": ["c3"], "transform": "hash", "buckets": 50},
        ],
    }
)


def rows(count: int, seed: int) -> pa.RecordBatch:
    """Rows of the log, labels included; a tenth of the values is missing."""
    random = np.random.default_rng(seed)
    days = random.integers(1, 29, count)
    values = {
        "click": random.integers(0, 2, count).astype(np.float32),
        "buy": random.integers(0, 2, count).astype(np.float32),
        "n1": np.floor(random.exponential(50, count)).astype(np.float32) - 2,
        "n2": random.normal(5, 3, count).astype(np.float32),
        "n3": random.exponential(1, count).astype(np.float32),
        "c1": [f"v{value}" for value in random.zipf(1.5, count) % 500],
        "c2": [f"é{value}" for value in random.integers(0, 20, count)],
        "c3": [f"{value:x}" for value in random.integers(0, 1 << 20, count)],
        "tags": ["|".join(f"t{tag}" for tag in random.integers(0, 9, random.integers(1, 6))) for _ in range(count)],
        "hour": [f"2511{day:02d}{hour:02d}" for day, hour in zip(days, random.integers(0, 24, count), strict=True)],
    }
    schema = payload_schema(SPEC)
    columns = []
    for field in schema:
        mask = np.zeros(count, bool) if field.name in SPEC.label_columns else random.random(count) < 0.1
        found = values[field.name]
        found = [value.encode() for value in found] if pa.types.is_binary(field.type) else found
        columns.append(pa.array(found, field.type, mask=mask))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_log(batch: pa.RecordBatch, path: pathlib.Path, spec: LogSpec = SPEC) -> None:
    """Writes the rows to a TSV file without a header."""
    columns = []
    for name in spec.data.columns:
        values = batch[name].cast(pa.string() if name in spec.text_columns else pa.float64()).to_pylist()
        columns.append(["" if v is None else v if isinstance(v, str) else repr(v).removesuffix(".0") for v in values])
    path.write_text("".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)))


def shared_version(shared_folder: SharedFolder) -> pathlib.Path:
    """The version that `save` exports, for tests that only read it."""
    return shared_folder("packed_servable", save) / VERSION


def save(
    folder: pathlib.Path,
    spec: LogSpec = SPEC,
    position: Mapping[str, str | float] | None = None,
    calibrate: Callable[[FeatureMap], FittedCalibration] | None = None,
    explains: bool = False,
) -> pathlib.Path:
    """Exports an untrained model with the statistics of some rows; returns the version's folder."""
    payload = folder / "payload"
    payload.mkdir(parents=True)
    train = rows(2000, 1)
    with PayloadWriter(payload, "train", payload_schema(SPEC)) as writer:
        writer.write(train)
    analyze(spec, payload_files(payload), folder / "graph", Workers(processes=1))
    transform = tft.TFTransformOutput(str(folder / "graph"))
    fields = feature_map(spec, transform)
    model = Model(name="mlp", embedding_dim=4, hidden_units=[8], embedding_stddev=1.0)
    learner = make_learner(model, Training(batch_size=64, distribution="one_device"), fields, 1)
    version = folder / VERSION
    first, calibration = train.slice(0, 3), calibrate and calibrate(fields)
    served_as = (position or {}, "float32", (lambda model: calibration) if calibration else None)
    export(learner.network, transform, spec, fields, first, version, {}, *served_as, explains=explains)
    return version
