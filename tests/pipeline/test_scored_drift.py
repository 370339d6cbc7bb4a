"""Drift of a scored log from the training statistics inside a model."""

import pathlib

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.pipeline.monitoring.scored_drift import compare_with_training, statistics_assets
from ctrpipe.pipeline.monitoring.statistics import generate_statistics
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from tests.serving.small_servable import spec

ROWS = 3000


def payload(folder: pathlib.Path, seed: int, shift: float = 0.0, labels: bool = False) -> list[pathlib.Path]:
    random = np.random.default_rng(seed)
    values = {
        "n": (random.normal(size=ROWS) + shift).astype(np.float32),
        "c": [b"ab"[index : index + 1] for index in random.integers(0, 2, ROWS)],
        "label": random.integers(0, 2, ROWS).astype(np.float32),
    }
    schema = payload_schema(spec())
    schema = schema if labels else pa.schema([field for field in schema if field.name != "label"])
    folder.mkdir()
    with PayloadWriter(folder, "rows", schema) as writer:
        writer.write(pa.RecordBatch.from_pydict({name: values[name] for name in schema.names}, schema))
    return payload_files(folder)


@pytest.fixture
def version(tmp_path) -> pathlib.Path:
    """A version's folder as far as it is needed, with the statistics of its training rows."""
    train = payload(tmp_path / "train", seed=1, labels=True)
    statistics = generate_statistics({"train": train}, 1000, 0, Workers(processes=1))["train"]
    files = statistics_assets(statistics, ROWS)
    assets = tmp_path / "3" / "assets.extra"
    assets.mkdir(parents=True)
    (assets / "log_spec.json").write_text(spec().model_dump_json())
    for name, contents in files.items():
        (assets / name).write_bytes(contents.encode() if isinstance(contents, str) else contents)
    return tmp_path / "3"


def test_a_log_like_the_training_rows_is_no_breach(version, tmp_path):
    found = compare_with_training(version, payload(tmp_path / "log", seed=2), 30_000, 7)
    assert not found["breached"] and {column["column"] for column in found["columns"]} == {"n", "c"}
    assert found["log"] == {"name": "training", "rows": ROWS, "rejected": 0, "rate": 1000 / ROWS}
    assert found["other"] == {"name": "serving", "rows": 30_000, "rejected": 7, "rate": 0.1}


def test_a_column_that_moved_is_named(version, tmp_path):
    found = compare_with_training(version, payload(tmp_path / "log", seed=2, shift=1.5), ROWS, 0)
    assert found["breached"] and [column["column"] for column in found["columns"] if column["breached"]] == ["n"]


def test_without_statistics_nothing_is_compared(version, tmp_path):
    log = payload(tmp_path / "log", seed=2)
    assert compare_with_training(version, [], 0, 5) is None
    (version / "assets.extra" / "training_statistics.pb").unlink()
    assert compare_with_training(version, log, ROWS, 0) is None


def test_damaged_counts_are_one_line(version, tmp_path):
    (version / "assets.extra" / "training_statistics.json").write_text("{")
    with pytest.raises(InputError, match="push the model again"):
        compare_with_training(version, payload(tmp_path / "log", seed=2), ROWS, 0)
