"""Rows of a latency benchmark with histories of one length."""

import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.serving.latency.histories import with_history
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "item", "items", "kinds"], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "categorical", "columns": ["item"]},
            {"kind": "sequence", "columns": ["items", "kinds"], "shared_with": ["item", None], "max_length": 5},
        ],
    }
)


def rows(items, kinds) -> pa.RecordBatch:
    columns = {"item": [b"x"] * len(items), "items": items, "kinds": kinds}
    return pa.RecordBatch.from_pydict({name: pa.array(values, pa.binary()) for name, values in columns.items()})


def test_every_row_has_so_many_items_and_aligned_columns_stay_aligned():
    found = with_history(rows([b"a|b|c", None, b"d"], [b"1||3", None, None]), SPEC, 4)
    assert found["items"].to_pylist() == [b"a|b|c|a", b"a|b|c|a", b"d|d|d|d"]
    assert found["kinds"].to_pylist() == [b"1||3|1", b"1||3|1", b"|||"]
    assert found["item"].to_pylist() == [b"x"] * 3


def test_a_row_before_the_first_history_gets_that_one_and_longer_ones_are_cut():
    found = with_history(rows([None, b"a|b|c|d|e|f"], [None, b"1|2|3|4|5|6"]), SPEC, 5)
    assert found["items"].to_pylist() == [b"a|b|c|d|e"] * 2


@pytest.mark.parametrize(
    ("items", "spec", "length", "words"),
    [
        ([b"a"], SPEC, 6, "--history 6: the model keeps 5 items"),
        ([None], SPEC, 5, "--history: no row has a history"),
        ([b"a"], SPEC.model_copy(update={"features": SPEC.features[:1]}), 5, "--history: the model reads no history"),
    ],
)
def test_a_length_that_cannot_be_had_is_one_line(items, spec, length, words):
    with pytest.raises(InputError, match=words):
        with_history(rows(items, items), spec, length)
