"""Versions exported by ctrpipe, which together have every signature."""

import contextlib
import functools
import pathlib
import tempfile
from collections.abc import Callable, Iterator

import keras
import numpy as np
import pyarrow as pa
import tensorflow_transform as tft

from ctrpipe.common.processes import Workers
from ctrpipe.models import create
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.serving.export.export import export
from ctrpipe.serving.export.retrieval import Cells, add_index
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.spec import LogSpec
from tests.attack.target import Target
from tests.fuzz.server import NAME
from tests.serving import packed_servable, text_servable

MAX_MEMORY = 3 << 30

ITEMS = 20_000  # of the index
_SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "user", "item", "year", "seen"], "labels": {"ctr": "click"}},
        "features": [
            {"columns": ["user", "item"], "kind": "categorical"},
            {"columns": ["year"], "kind": "numeric", "transform": "standardize", "role": "item"},
            {"columns": ["seen"], "kind": "sequence", "shared_with": "item", "max_length": 20},
        ],
    }
)


def save_towers(folder: pathlib.Path) -> pathlib.Path:
    """Exports two towers of random weights, with both indexes; returns the model's folder."""
    random = np.random.default_rng(1)
    count = 500
    schema = payload_schema(_SPEC)
    values = {
        "click": random.integers(0, 2, count).astype(np.float32),
        "year": random.normal(2000, 10, count).astype(np.float32),
        "user": [b"u%d" % number for number in random.integers(0, 50, count)],
        "item": [b"f%d" % number for number in random.integers(0, 50, count)],
        "seen": [b"|".join(b"f%d" % item for item in random.integers(0, 50, 5)) for _ in range(count)],
    }
    batch = pa.RecordBatch.from_arrays([pa.array(values[field.name], field.type) for field in schema], schema=schema)
    payload = folder / "payload"
    payload.mkdir(parents=True)
    with PayloadWriter(payload, "train", schema) as writer:
        writer.write(batch)
    analyze(_SPEC, payload_files(payload), folder / "graph", Workers(processes=1))
    transform = tft.TFTransformOutput(str(folder / "graph"))
    fields = feature_map(_SPEC, transform)
    keras.utils.set_random_seed(1)
    model = create("two_tower", fields, embedding_dim=4, embedding_stddev=1.0, hidden_units=(8,), vector_dim=8)
    model(empty_row(fields))
    plain = folder / "plain" / "1"
    export(model, transform, _SPEC, fields, batch.slice(0, 5), plain, {})
    names = np.array([b"f%d" % number for number in range(ITEMS)], object)
    vectors = random.normal(size=(ITEMS, 8)).astype(np.float32)
    cells = Cells(vectors[:100].copy(), (np.arange(ITEMS) % 100).astype(np.int32), 5)
    add_index(plain, names, vectors, 50, folder / "indexed" / "1", cells)
    return folder / "indexed"


EXPORTS: dict[str, Callable[[pathlib.Path], pathlib.Path]] = {
    "columns": lambda folder: packed_servable.save(folder, explains=True).parent,
    "text": lambda folder: text_servable.save(folder).parent,
    "towers": save_towers,
}


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    """Returns a folder with all exports; it goes with the process."""
    folder = tempfile.TemporaryDirectory()
    for model, save in EXPORTS.items():
        (pathlib.Path(folder.name) / f"{model}.base").symlink_to(save(pathlib.Path(folder.name) / model))
    return folder


@contextlib.contextmanager
def exported(target: Target) -> Iterator[Target]:
    """Serves the exports next to the target's own model, with --max_memory=MAX_MEMORY, until the block ends."""
    assert target.models
    folder = pathlib.Path(_folder().name)
    bases = {NAME: target.models / NAME} | {model: folder / f"{model}.base" for model in EXPORTS}
    entries = [
        f'config {{ name: "{name}" base_path: "{base}" model_platform: "tensorflow" }}' for name, base in bases.items()
    ]
    config = folder / "models.config"
    config.write_text(f"model_config_list {{ {' '.join(entries)} }}")
    with target.another(f"--model_config_file={config}", f"--max_memory={MAX_MEMORY}") as served:
        yield served
