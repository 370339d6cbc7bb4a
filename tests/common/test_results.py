"""Results of a process's work, written and read again: equal, and without running anything."""

import dataclasses
import json
import pathlib
from collections import Counter

import numpy as np
import pytest

from ctrpipe.common.processes import Workers
from ctrpipe.common.results import result_from_json, result_to_json
from ctrpipe.transforms.kddcup2012.lines import Counted
from ctrpipe.transforms.kddcup2012.read import Tally


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -7,
        0.1,
        "é\n\x00",
        [1, [2.5, None]],
        (1, ("a", [()])),
        {"a": 1, 2: {"b": (3,)}, "kind": "path"},
        Counter({"why": 3}),
        pathlib.Path("/a/b"),
        Tally(5, 2, Counter(bad=2), "log: line 1"),
        [(Tally(), ["letter\n"])],
    ],
)
def test_a_result_comes_back_as_it_was(value):
    found = result_from_json(result_to_json(value))
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "int64", "float32", "float64", "bool"])
def test_arrays_keep_type_shape_and_every_bit(dtype):
    high = 1 if dtype == "bool" else np.finfo(dtype).max if dtype.startswith("f") else np.iinfo(dtype).max
    array = np.array([[0, 1, high]], dtype)
    found = result_from_json(result_to_json(array))
    assert found.dtype == array.dtype and found.tobytes() == array.tobytes() and found.shape == (1, 3)
    assert result_from_json(result_to_json(np.zeros(0, dtype))).dtype == array.dtype


def test_a_result_that_0_2_wrote_is_read():
    text = json.dumps({"kind": "common.processes:Workers", "value": {"most": 3}})
    assert result_from_json(text) == Workers(most=3)


def test_dataclasses_with_arrays():
    counts = np.arange(4)
    counted = Counted(Tally(1), [], counts, counts * 2, counts, counts, counts)
    found = result_from_json(result_to_json(counted))
    assert found.tally == counted.tally and found.clicks.tolist() == [0, 2, 4, 6]


@dataclasses.dataclass
class Stranger:
    value: int


def test_only_what_is_ours_is_written_or_made():
    for value in (Stranger(1), {1, 2}, b"bytes", np.array(["a"], object)):
        with pytest.raises(TypeError, match="no result that can be written as JSON"):
            result_to_json(value)
    for kind in (
        "os:system",
        "subprocess:Popen",
        "ctrpipe.common.errors:InputError",
        "ctrpipe.common.processes:stop_command",
        "x",
    ):
        with pytest.raises(ValueError, match="^not a (dataclass|result) of ctrpipe: "):
            result_from_json(json.dumps({"kind": kind, "value": {"command": "touch here"}}))
    with pytest.raises(ValueError, match="not a result of ctrpipe"):
        result_from_json('{"value": 1}')
