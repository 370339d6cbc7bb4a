"""Vocabularies that keep values which today's rows lack."""

import pyarrow as pa
import pytest

from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.learned import Former
from ctrpipe.transforms.features.transform import AGES, GRAPH, write_graph
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies
from ctrpipe.transforms.log.spec import LogSpec


def letters(text: str) -> pa.Array:
    return pa.array([letter.encode() for letter in text], pa.binary())


def former(**limits) -> Former:
    """Five values: a and b were seen yesterday, c and d one training earlier, e two earlier."""
    return Former(vocabularies={"x": letters("abcde")}, ages={"x": [2, 2, 1]}, **limits)


@pytest.mark.parametrize(
    ("limits", "today", "values", "ages"),
    [
        ({"max_age": 0}, "zb", "zb", [2]),
        ({"max_age": 1}, "zb", "zba", [2, 1]),
        ({"max_age": 2}, "zb", "zbacd", [2, 1, 2]),
        ({"max_age": 9}, "zb", "zbacde", [2, 1, 2, 1]),
        ({"max_age": 9, "max_values": 4}, "zb", "zbac", [2, 1, 1]),
        ({"max_age": 9, "max_values": 1}, "zb", "z", [1]),
        ({"max_age": 9}, "edcba", "edcba", [5]),
        ({"max_age": 9}, "", "abcde", [0, 2, 2, 1]),
    ],
)
def test_values_stay_by_age_and_by_number_those_that_were_seen_last_first(limits, today, values, ages):
    found, found_ages = former(**limits).grown("x", letters(today))
    assert found.to_pylist() == letters(values).to_pylist() and found_ages == ages


def test_a_column_that_the_former_transform_lacks_has_todays_values():
    found, ages = former(max_age=3).grown("other", letters("pq"))
    assert found.to_pylist() == [b"p", b"q"] and ages == [2]


def test_a_graph_is_written_with_the_values_that_stay(tmp_path):
    spec = LogSpec.model_validate(
        {
            "data": {"columns": ["click", "x"], "labels": {"ctr": "click"}},
            "features": [{"kind": "categorical", "columns": ["x"]}],
        }
    )
    counter = LogCounter.of_log(spec)
    counter.add({"x": letters("bzz"), "click": pa.array([0.0, 1.0, 0.0], pa.float32())})
    write_graph(spec, counter.summary(), tmp_path, former(max_age=1))
    assert read_vocabularies(tmp_path / GRAPH / "assets", spec)["x"].to_pylist() == [b"z", b"b", b"a"]
    assert (tmp_path / AGES).read_text().split() == ["{", '"x":', "[", "2,", "1", "]", "}"]
