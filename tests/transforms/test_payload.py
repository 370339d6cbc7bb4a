import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.transforms.log import payload
from ctrpipe.transforms.log.payload import (
    PayloadWriter,
    payload_files,
    payload_rows,
    payload_schema,
    read_payload,
    read_rows,
)
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "price", "site", "skipped"], "labels": {"ctr": "click"}},
        "features": [{"kind": "numeric", "columns": ["price"]}, {"kind": "categorical", "columns": ["site"]}],
    }
)


def rows(first: int, count: int) -> pa.RecordBatch:
    numbers = np.arange(first, first + count)
    site = [None if n % 3 == 0 else f"sité{n % 7}".encode() for n in numbers]
    columns = {"click": (numbers % 2).astype(np.float32), "skipped": numbers, "site": pa.array(site, pa.binary())}
    return pa.RecordBatch.from_pydict({**columns, "price": pa.array(numbers, pa.float32(), mask=numbers % 5 == 0)})


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(payload, "ROW_GROUP_ROWS", 10)
    monkeypatch.setattr(payload, "PART_ROWS", 30)


def write(folder, *batches: pa.RecordBatch) -> None:
    with PayloadWriter(folder, "part", payload_schema(SPEC)) as writer:
        for batch in batches:
            writer.write(batch)


@pytest.mark.parametrize("as_dictionaries", [False, True])
def test_rows_come_back_in_order_over_parts_and_row_groups(tmp_path, small_parts, as_dictionaries):
    write(tmp_path, rows(0, 25), rows(25, 0), rows(25, 50))
    files = payload_files(tmp_path)
    assert [path.name for path in files] == ["part-00000.parquet", "part-00001.parquet", "part-00002.parquet"]
    assert payload_rows(files) == 75
    found = pa.Table.from_batches(read_payload(files, as_dictionaries=as_dictionaries)).to_pydict()
    assert found == rows(0, 75).select(["price", "site", "click"]).to_pydict()


@pytest.mark.parametrize(("first", "stop"), [(0, 25), (9, 11), (10, 20), (24, 25), (7, 7)])
def test_some_rows_of_a_part_are_read_over_its_row_groups(tmp_path, small_parts, first, stop):
    write(tmp_path, rows(0, 25))
    found = list(read_rows(tmp_path / "part-00000.parquet", first, stop))
    assert sum((batch["click"].to_pylist() for batch in found), []) == [float(n % 2) for n in range(first, stop)]
    assert sum((batch["site"].to_pylist() for batch in found), []) == rows(first, stop - first)["site"].to_pylist()


def test_only_the_columns_asked_for_are_read(tmp_path):
    write(tmp_path, rows(0, 8))
    (batch,) = read_payload(payload_files(tmp_path), ["click", "price"])
    assert batch.schema.names == ["click", "price"]


def test_no_rows_make_no_file(tmp_path):
    write(tmp_path, rows(0, 0))
    assert not list(tmp_path.iterdir())


def test_a_writer_that_fails_leaves_no_part_that_is_not_whole(tmp_path, small_parts):
    with pytest.raises(KeyboardInterrupt), PayloadWriter(tmp_path, "part", payload_schema(SPEC)) as writer:
        writer.write(rows(0, 45))
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["part-00000.parquet"]
    assert payload_rows(payload_files(tmp_path)) == 30


def test_a_part_that_is_being_written_is_no_part_yet(tmp_path, small_parts):
    with PayloadWriter(tmp_path, "part", payload_schema(SPEC)) as writer:
        writer.write(rows(0, 45))
        assert [path.name for path in payload_files(tmp_path)] == ["part-00000.parquet"]
        assert len(list(tmp_path.iterdir())) == 2
