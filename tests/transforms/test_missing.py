import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.transforms.features.kept_rows import drop_values
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "ad", "user", "site"], "labels": {"ctr": "click"}},
        "features": [
            {"kind": "categorical", "columns": ["ad", "user"], "missing_rate": 0.05},
            {"kind": "categorical", "columns": ["site"]},
        ],
    }
)
ROWS = 40_000


def rows(as_dictionaries: bool) -> pa.RecordBatch:
    values = {name: pa.array([f"{name}{n % 70}".encode() for n in range(ROWS)]) for name in ("ad", "user", "site")}
    values["ad"] = pa.array([None if n < 1000 else value for n, value in enumerate(values["ad"].to_pylist())])
    if as_dictionaries:
        values = {name: column.dictionary_encode() for name, column in values.items()}
    return pa.RecordBatch.from_pydict({**values, "click": pa.array([0.0] * ROWS, pa.float32())})


@pytest.mark.parametrize("as_dictionaries", [False, True])
def test_the_stated_share_of_values_goes_and_nothing_else_changes(as_dictionaries):
    before = rows(as_dictionaries)
    after = drop_values(before, SPEC, np.random.default_rng(0))
    assert after.schema == before.schema
    gone = {}
    for name in ("ad", "user"):
        old, new = (np.array(batch[name].to_pylist(), object) for batch in (before, after))
        gone[name] = np.array([value is None for value in new])
        assert (new[~gone[name]] == old[~gone[name]]).all()
        assert gone[name][1000:].mean() == pytest.approx(0.05, abs=0.005)
    assert after["ad"][:1000].null_count == 1000
    both = (gone["ad"] & gone["user"])[1000:].mean()
    assert both == pytest.approx(0.05**2, abs=0.0015)  # one column's draw says nothing of another's
    assert after["site"].equals(before["site"]) and after["click"].equals(before["click"])


def test_the_same_seed_drops_the_same_values_in_either_form():
    plain, dictionaries = (drop_values(rows(form), SPEC, np.random.default_rng(3)) for form in (False, True))
    assert plain["user"].to_pylist() == dictionaries["user"].to_pylist()
    other = drop_values(rows(False), SPEC, np.random.default_rng(4))
    assert plain["user"].to_pylist() != other["user"].to_pylist()


def test_a_slice_of_a_batch_loses_the_values_that_it_loses_by_itself():
    part = rows(False).slice(1234, 500)
    alone = pa.RecordBatch.from_pydict({name: pa.array(part[name].to_pylist()) for name in part.schema.names})
    found, expected = (drop_values(batch, SPEC, np.random.default_rng(0)) for batch in (part, alone))
    found.validate(full=True)
    assert found.select(["ad", "user"]).to_pylist() == expected.select(["ad", "user"]).to_pylist()
