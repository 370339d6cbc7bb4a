"""Packing the different values of a column against packing every row, by a servable with every kind of column."""

import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.serving.loader import Servable
from ctrpipe.serving.rows import Scorer
from ctrpipe.serving.scoring.score import score
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from tests.serving.packed_servable import SPEC, rows, shared_version, write_log


@pytest.fixture(scope="module")
def version(shared_folder) -> pathlib.Path:
    return shared_version(shared_folder)


def by_raw(version: pathlib.Path, batch: pa.RecordBatch) -> dict[str, np.ndarray]:
    """The answers of the signature serving_raw to all rows at once."""
    servable = Servable(version)
    try:
        return servable.run("serving_raw", raw_arrays(batch, SPEC))
    finally:
        servable.close()


@pytest.fixture
def scorer(version):
    scorer = Scorer(version)
    assert scorer.packs
    yield scorer
    scorer.close()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 6, 7, 500])
def test_scores_are_those_of_serving_raw(version, scorer, monkeypatch, count):
    monkeypatch.setattr("ctrpipe.serving.rows.MODEL_ROWS", 7)
    monkeypatch.setattr("ctrpipe.transforms.features.pack_rows.GRAPH_ROWS", 10)
    batch = rows(count, seed=2)
    # Several chunks, as the reader gives them: one may be empty, and one may have values of its own.
    chunks = [batch.slice(0, count // 3), batch.slice(0, 0), batch.slice(count // 3)]
    found, expected = scorer(pa.Table.from_batches(chunks)), by_raw(version, batch)
    assert list(found) == ["ctr", "cvr"]
    for task in found:
        assert found[task].dtype == np.float32
        np.testing.assert_allclose(found[task], expected[task], atol=1e-6)
        assert count < 100 or np.std(found[task]) > 0.05  # the rows are not all alike to the model


@pytest.mark.slow
def test_rows_without_any_value(version, scorer):
    batch = rows(4, seed=3)
    empty = pa.RecordBatch.from_arrays([pa.nulls(4, field.type) for field in batch.schema], schema=batch.schema)
    found, expected = scorer(pa.Table.from_batches([empty])), by_raw(version, empty)
    np.testing.assert_allclose(found["ctr"], expected["ctr"], atol=1e-6)


def test_no_rows(scorer):
    found = scorer(pa.Table.from_batches([rows(4, seed=3).slice(0, 0)]))
    assert {task: values.shape for task, values in found.items()} == {"ctr": (0,), "cvr": (0,)}


def test_a_check_ends_the_work_between_two_batches(scorer, monkeypatch):
    monkeypatch.setattr("ctrpipe.serving.rows.MODEL_ROWS", 7)
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 3:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        scorer(pa.Table.from_batches([rows(100, seed=4)]), check)


@pytest.mark.slow
def test_each_task_has_a_column_of_the_file(version, tmp_path, monkeypatch):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 5000)
    batch = rows(300, seed=5)
    write_log(batch, tmp_path / "log.tsv")
    result = score(version, [str(tmp_path / "log.tsv")], tmp_path / "out")
    assert result.parts > 1 and (result.scored, result.rejected) == (300, 0)
    table = pyarrow.parquet.read_table(sorted((tmp_path / "out").glob("part-*")))
    assert table.schema.names == ["file", "line", "ctr", "cvr", "model_version"]
    expected = by_raw(version, batch)
    for task in ("ctr", "cvr"):
        np.testing.assert_allclose(table[task].to_numpy(), expected[task], atol=1e-6)
        assert result.scores[task]["mean"] == pytest.approx(expected[task].mean(), abs=1e-6)
