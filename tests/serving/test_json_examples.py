"""The JSON of classify and regress: values in bulk and one by one, and the time that a large example takes."""

import math

import pytest
from tensorflow.core.example import example_pb2

from ctrpipe.serving.server import json_examples
from ctrpipe.serving.server.body_cost import CHECK_EVERY, Reading
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.json_examples import parse_examples

VALUES = {
    "integers": [0, 1, -5, 2**63 - 1, -(2**63)],
    "an integer above int64": [1, 2**63],
    "numbers": [0.5, -0.0, 1e-45, -1e-45, 3.5e38, math.inf, math.nan],
    "texts": ["", "a", "\u00e9" * 100, "a\0b"],
    "bytes that are not UTF-8": ["a", "\udcff"],
    "truth values": [True, False],
    "base64": [{"b64": "YWJj"}, {"b64": ""}],
    "nothing": [],
    "one value": 7,
    "integers and numbers": [1, 1.5],
    "integers and truth values": [1, True],
    "null": [None],
    "a list": [[1]],
}


def outcome(body):
    try:
        return parse_examples(body)
    except ServingError as error:
        return error.code, error.message


@pytest.mark.parametrize("name", VALUES)
def test_values_are_read_in_bulk_as_one_by_one(name, monkeypatch):
    body = {"examples": [{"f": VALUES[name], "x": 1}, {}], "context": {"c": VALUES[name]}}
    in_bulk = outcome(body)
    monkeypatch.setattr(json_examples, "_bulk", lambda items: None)
    assert in_bulk == outcome(body)


def test_long_names_and_lists_have_their_lengths():
    features = {"n" * size: [1.5] * size for size in (1, 127, 128, 16_383, 16_384)}
    [serialized] = parse_examples({"examples": [features]})
    parsed = example_pb2.Example.FromString(serialized).features.feature
    assert {name: list(feature.float_list.value) for name, feature in parsed.items()} == features


@pytest.mark.parametrize("place", ["examples", "context"])
def test_an_example_of_more_features_than_fit_the_memory_is_refused(place):
    features = {str(number): 1 for number in range(100)}
    body = {"examples": [features] * 3} if place == "examples" else {"examples": [{}], "context": features}
    assert parse_examples(body, Reading(spare_bytes=40_000))
    with pytest.raises(
        ServingError, match="An example of 100 features would take more than --max_json_memory_bytes=39"
    ):
        parse_examples(body, Reading(spare_bytes=39_999))


@pytest.mark.parametrize(
    ("example", "looks"),  # the looks at the time until CHECK_EVERY members or values are read
    [({str(number): 1 for number in range(CHECK_EVERY + 1)}, 1), ({"f": [1, True] * CHECK_EVERY}, 2)],
)
@pytest.mark.parametrize("place", ["examples", "context"])
def test_a_large_example_ends_when_its_client_has_gone(example, looks, place):
    left = iter([False] * (looks + (place == "examples")))
    body = {"examples": [{}], "context": example} if place == "context" else {"examples": [example]}
    with pytest.raises(ServingError) as error:
        parse_examples(body, Reading(lambda: next(left, True)))
    assert error.value.code == "DEADLINE_EXCEEDED"
