"""Gates on the effective catalogue size, on lists that can be worked out by hand."""

import json

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import CatalogueBounds, check_config
from ctrpipe.pipeline.evaluation import catalogue
from ctrpipe.pipeline.evaluation.catalogue import catalogue_gates
from ctrpipe.transforms.log.spec import LogSpec
from tests.small_config import SMALL

SPEC = LogSpec.model_validate(
    {
        "data": {"columns": ["click", "session", "film"], "labels": {"ctr": "click"}},
        "features": [{"kind": "categorical", "columns": ["session", "film"]}],
    }
)
# Four sessions of the films a, b, c; of the fifth all candidates are positive.
SESSIONS, FILMS = list("1112223334445"), list("abcabcabcabca")
CLICKS = [1, 0, 0] * 4 + [1]
SAME = np.array([3, 2, 1] * 4 + [0]) / 10  # a is first everywhere
SPREAD = np.array([3, 2, 1, 2, 3, 1, 1, 2, 3, 3, 2, 1, 0]) / 10  # a twice, b, c: ECS 2 (.5 + 2 .25 + 3 .25) - 1
WIDE = 2 * (0.5 + 2 * 0.25 + 3 * 0.25) - 1


@pytest.fixture
def gates(monkeypatch):
    """The gates of a model on those sessions."""
    names = {"session": SESSIONS, "film": FILMS}
    columns = {name: pa.array([value.encode() for value in values]) for name, values in names.items()}
    rows = pa.RecordBatch.from_pydict({**columns, "click": pa.array(CLICKS, pa.float32())})
    monkeypatch.setattr(catalogue, "read_payload", lambda files, names: iter([rows.select(names)]))

    def gates(model, last_blessed=None, **limits):
        bounds = CatalogueBounds(group="session", k=1, **limits)
        return catalogue_gates(bounds.model_copy(update={"item": "film"}), SPEC, [], model, last_blessed)

    return gates


@pytest.mark.parametrize(("model", "shown"), [(SAME, 1.0), (SPREAD, WIDE)])
def test_the_least_size_that_passes(gates, model, shown):
    [row] = gates(model, min=2.5)
    assert (row["metric"], row["kind"], row["bound"]) == ("ecs", "absolute", "at least 2.5")
    assert row["value"] == pytest.approx(shown) and row["passed"] == (shown >= 2.5)
    assert gates(model, min=shown)[0]["passed"]


def test_a_model_that_narrows_what_people_see_is_blocked(gates):
    [row] = gates(SAME, SPREAD, max_drop=0.05)
    assert row["kind"] == "change" and not row["passed"] and row["value"] == pytest.approx(1 - 1 / WIDE)
    assert row["reason"] == "1.0 after 2.5: 60.0% lower"
    assert gates(SAME, SPREAD, max_drop=0.61)[0]["passed"]
    [wider] = gates(SPREAD, SAME, max_drop=0)
    assert wider["passed"] and wider["reason"] == "2.5 after 1.0: 0.0% lower"
    assert [row["passed"] for row in gates(SAME, None, min=1, max_drop=0)] == [True, True]  # a first model


def test_a_log_without_lists_does_not_pass(gates, monkeypatch):
    rows = pa.RecordBatch.from_pydict(
        {"session": [b"1", b"2"], "film": [b"a", b"b"], "click": pa.array([1.0, 0.0], pa.float32())}
    )
    monkeypatch.setattr(catalogue, "read_payload", lambda files, names: iter([rows]))
    [row] = gates(np.array([0.1, 0.2]), min=2)
    assert not row["passed"] and row["reason"] == "no session has a candidate with label 1 and one with 0"


@pytest.mark.parametrize(
    ("limits", "complaint"),
    [
        ({}, "give min, max_drop or both"),
        ({"min": 3, "group": "nothing"}, "gates.ecs.group nothing: not a categorical column of the model"),
    ],
)
def test_limits_that_cannot_be_kept_are_refused_before_the_run(limits, complaint):
    with pytest.raises(InputError, match=complaint):
        check_config({**SMALL, "gates": {"ecs": limits}}, (), "small.yaml")


def test_the_rows_are_json(gates):
    assert json.loads(json.dumps(gates(SAME, SPREAD, min=2, max_drop=0.1)))[0]["passed"] is False
