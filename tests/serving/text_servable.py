"""A servable with a text of two columns, exported with random weights in a few seconds."""

import pathlib
import shutil

import keras
import numpy as np
import pyarrow as pa
import tensorflow_transform as tft

from ctrpipe.common.processes import Workers
from ctrpipe.models import create
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.models.base.raw_numbers import reads_numbers
from ctrpipe.serving.export.export import export
from ctrpipe.serving.layout import Asset, versions
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.spec import LogSpec
from tests.models.small_models import ENCODER, SMALL
from tests.shared_folders import SharedFolder

VERSION = "bert4ctr/1"
WORDS = ("red", "dress", "new", "hat", "blue", "shoes", "old", "coat")
COLUMNS = ("search query", "title")
SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "age", "shop", "place", *COLUMNS], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "numeric", "columns": ["age"], "transform": "min_max", "buckets": 10},
            {"kind": "categorical", "columns": ["shop"]},
            {"kind": "categorical", "columns": ["place"], "role": "position"},
            {"kind": "text", "columns": list(COLUMNS), "length": 12, "tokens": "vocabulary", "separator": " "},
        ],
    }
)


def rows(count: int, seed: int) -> pa.RecordBatch:
    """Rows of the log; texts of up to six words."""
    random = np.random.default_rng(seed)
    texts = [[" ".join(random.choice(WORDS, random.integers(0, 7))) for _ in range(count)] for _ in COLUMNS]
    values = {
        "click": random.integers(0, 2, count).astype(np.float32),
        "age": random.uniform(18, 80, count).astype(np.float32),
        "shop": [f"s{value}".encode() for value in random.integers(0, 9, count)],
        "place": [f"{value}".encode() for value in random.integers(0, 3, count)],
        **{name: [text.encode() for text in column] for name, column in zip(COLUMNS, texts, strict=True)},
    }
    schema = payload_schema(SPEC)
    return pa.RecordBatch.from_arrays([pa.array(values[field.name], field.type) for field in schema], schema=schema)


def shared_servable(shared_folder: SharedFolder) -> pathlib.Path:
    """The folder in which `save` exports a bert4ctr, VERSION, in float32, for tests that only read it."""
    return shared_folder("text_servable", save)


def copied(version: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Returns a copy for a test that writes; it has no warm-up requests, whose replay takes most of a check."""
    return shutil.copytree(version, folder / "1", ignore=shutil.ignore_patterns(Asset.WARMUP))


def save(folder: pathlib.Path, name: str = "bert4ctr", **settings) -> pathlib.Path:
    """Exports a small model of this name; `settings` are those of `export`. Returns the version's folder.

    Versions of the same folder share what is learned from the log.
    """
    spec = SPEC.model_copy(update={"raw_numbers": reads_numbers(name)})
    payload, graph = folder / "payload", folder / ("graph_of_numbers" if spec.raw_numbers else "graph")
    if not payload.exists():
        payload.mkdir(parents=True)
        with PayloadWriter(payload, "train", payload_schema(SPEC)) as writer:
            writer.write(rows(500, 1))
    if not graph.exists():
        analyze(spec, payload_files(payload), graph, Workers(processes=1))
    transform = tft.TFTransformOutput(str(graph))
    fields = feature_map(spec, transform)
    keras.utils.set_random_seed(1)
    model = create(name, fields, **{**SMALL[name], **ENCODER, "encoder_layers": 1, "encoder_width": 16})
    model(empty_row(fields))
    random = np.random.default_rng(2)
    for weight in model.trainable_variables:
        weight.assign(random.normal(scale=0.3, size=weight.shape))
    models = folder / name
    version = models / str(1 + len(versions(models)))
    export(model, transform, spec, fields, rows(5, 1), version, {}, **settings)
    return version
