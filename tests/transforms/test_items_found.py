"""Lists of items with several values each, which a log's first rows show."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.pipeline.config import RunConfig
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.transforms.log.items_found import with_items_found
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec

CLICKS, ITEM = [0, 1, 0, 1] * 10, ["i1", "i2", "i3", "i1"] * 10
ITEMS = [["i1", "i2"], ["i3"], [], ["i1", "i2", "i3"]] * 10
CATEGORIES = [[["c1", "c2"], ["c2"]], [["c3", "c1", "c2"]], [], [["c1"], [], ["c2", "c9"]]] * 10
SEQUENCE = {"kind": "sequence", "columns": ["items", "cats"], "shared_with": ["item", None], "max_length": 2}


def config(name: str, **changes) -> RunConfig:
    features = [{"kind": "categorical", "columns": ["item"]}, {**SEQUENCE, **changes}]
    data = {"format": name, "labels": {"ctr": "click"}, "split": {"by": "hash", "validation": 0.2, "test": 0.3}}
    values = {"name": "t", "data": data, "features": features, "model": {"name": "lr"}}
    return RunConfig.model_validate(values)


def write(path, cats) -> str:
    columns = {"click": CLICKS, "item": ITEM, "items": ITEMS, "cats": cats}
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.table(columns), path)
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        path.write_text(
            "".join(json.dumps(row) + "\n" for row in rows) if path.suffix == ".jsonl" else json.dumps(rows)
        )
    return str(path)


def joined(sign: str) -> list[list[str]]:
    return [[sign.join(values) for values in row] for row in CATEGORIES]


@pytest.mark.parametrize("name", ["parquet", "jsonl", "json"])
@pytest.mark.parametrize("nested", [True, False])
def test_an_item_has_as_many_values_as_the_lists_show(tmp_path, name, nested):
    path = write(tmp_path / f"log.{name}", CATEGORIES if nested else joined("|"))
    placed, files = config(name).placed([path])
    found = placed.features[1]
    assert files == [path] and found.values_per_item == {"cats": 3}
    assert (found.separator, found.within) == (("|", ";") if nested else (";", "|"))
    batches = list(LogReader(placed.log_spec).read(path))
    assert not any(batch.rejects for batch in batches)
    values = pa.Table.from_batches([batch.rows for batch in batches])["cats"].to_pylist()[:4]
    expected = [b"c1;c2|c2", b"c3;c1;c2", None, b"c1||c2;c9"]
    swap = bytes.maketrans(b";|", b"|;")
    assert values == (expected if nested else [value and value.translate(swap) for value in expected])
    LogSpec.model_validate_json(placed.log_spec.model_dump_json())  # as an export has it
    notes = check_log(config(name), [path]).notes
    assert any(note.startswith("cats: the items have several values each") for note in notes)


def test_what_is_configured_or_has_one_value_an_item_stays(tmp_path):
    several = {"within": ",", "values_per_item": {"cats": 2}}
    path = write(tmp_path / "log.parquet", joined("|"))
    assert config("parquet", **several).placed([path])[0].features[1].values_per_item == {"cats": 2}
    one = write(tmp_path / "one.parquet", joined("-"))  # another sign is part of the value
    given = config("parquet")
    assert given.placed([one])[0] is given
    assert with_items_found(given.features, str(tmp_path / "absent.parquet"), "utf-8").told == []


def test_a_column_that_shares_the_item_s_vocabulary_has_one_value_an_item(tmp_path):
    path = write(tmp_path / "log.parquet", joined("|"))
    given = config("parquet", shared_with=["item", "item"])
    assert given.placed([path])[0] is given
    assert any("has the separator '|' in it" in error for error in check_log(given, [path]).errors)
