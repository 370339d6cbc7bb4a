"""The estimate of a body's memory: its counts against a simple reading of the same bytes."""

import json
import random

import pytest
import tensorflow as tf

from ctrpipe.serving.server import body_cost
from ctrpipe.serving.server.body_cost import Reading, check_cost
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.json_body import parse_body
from ctrpipe.serving.server.json_examples import parse_examples
from ctrpipe.serving.server.tensors import parse_predict

MEBIBYTE = 1 << 20
OVER = Reading(lambda: True)


def counted(text):
    """The marks outside of strings, the deepest level, and the bytes within strings, byte by byte."""
    counts, level, deepest, within, inside, escaped = dict.fromkeys(',[{:"', 0), 0, 0, 0, False, False
    for character in text:
        if inside:
            if escaped:
                escaped = False
                within += 1
            elif character == "\\":
                escaped = True
                within += 1
            elif character == '"':
                counts['"'] += 1
                inside = False
            else:
                within += 1
            continue
        if character == '"':
            inside = True
        if character in counts:
            counts[character] += 1
        level += (character in "[{") - (character in "]}")
        deepest = max(deepest, level)
    return tuple(counts.values()), deepest, within


@pytest.mark.parametrize("piece", [1, 2, 3, 7, MEBIBYTE])
def test_marks_are_counted_outside_of_strings_wherever_a_piece_ends(monkeypatch, piece):
    monkeypatch.setattr(body_cost, "_PIECE_BYTES", piece)
    draw = random.Random(piece)
    for _ in range(60):
        words = ["a", "\\", '"', "\\\\", "[,{:", "]"]
        strings = ["".join(draw.choices(words, k=draw.randrange(8))) for _ in range(4)]
        text = json.dumps({strings[0]: [strings[1], [[1, 2.5], {}]], "b": {"c": strings[2:]}})
        assert body_cost._count_outside_strings(text.encode()) == counted(text)


@pytest.mark.parametrize(
    ("item", "count", "is_refused"),
    [
        ("0.1234567", 100_000, False),
        ("[0.1234567, 0.1234567, 0.1234567]", 100_000, False),
        ('"68fd1e64"', 200_000, False),
        ('"' + "," * 50 + '"', 100_000, False),
        ('{"f": 1.5, "i": 12345, "s": "a", "b": true}', 100_000, False),
        ('{"f": 1.5, "i": 12345, "s": "a", "b": true}', 1_000_000, True),
        ('"aaaa"', 5_000_000, True),
        ("[]", 2_000_000, True),
        ("{}", 2_000_000, True),
        ("1", 5_000_000, True),
    ],
)
def test_a_body_is_refused_by_what_its_values_take(item, count, is_refused):
    body = b'{"instances": [%s]}' % b",".join([item.encode()] * count)
    if not is_refused:
        return check_cost(body, 64 * MEBIBYTE, 100_000)
    with pytest.raises(ServingError, match="--max_json_memory_bytes=67108864 and 4 times its size"):
        check_cost(body, 64 * MEBIBYTE, 100_000)
    check_cost(body, 4096 * MEBIBYTE, 10_000_000)


def test_a_body_nested_too_deep_is_refused():
    check_cost(b"[" * 1000 + b"]" * 1000, 64 * MEBIBYTE, 1000)
    with pytest.raises(ServingError, match="nested in 1001 levels, above --max_json_depth=1000"):
        check_cost(b"[" * 1001 + b"]" * 1001, 64 * MEBIBYTE, 1000)
    check_cost(b'["' + b"[" * 5000 + b'"]', 64 * MEBIBYTE, 1000)
    check_cost(b"[[]," * 500 + b"0" + b"]" * 500, 64 * MEBIBYTE, 1000)


@pytest.mark.parametrize(
    "read",
    [
        lambda: parse_body(b'{"a": [%s NaN x' % (b"NaN," * 2000), OVER),
        lambda: parse_predict({"instances": [1.0, "a"]}, {"x": tf.float32}, reading=OVER),
        lambda: parse_predict({"inputs": [{"b64": "YQ=="}, "a"] * 500}, {"x": tf.string}, reading=OVER),
        lambda: parse_examples({"examples": [{}]}, OVER),
    ],
)
def test_reading_stops_where_nobody_waits_any_more(read):
    with pytest.raises(ServingError) as error:
        read()
    assert error.value.code == "DEADLINE_EXCEEDED"


def test_a_parser_looks_at_the_clock_on_its_way():
    looks = []
    body = b'{"a": [%s x' % (b"1," * 10_000)
    with pytest.raises(ServingError, match="Invalid value"):
        parse_body(body, Reading(lambda: looks.append(1) or False))
    assert len(looks) >= 10


def test_rows_that_differ_are_read_one_by_one_in_bounded_number():
    rows = [1.0] * 5000 + ["a"]
    with pytest.raises(ServingError, match="4000 of them would take more than --max_json_memory_bytes=1048576"):
        parse_predict({"instances": rows}, {"x": tf.float32}, reading=Reading(spare_bytes=MEBIBYTE))
    with pytest.raises(ServingError, match="Failed to process element: 5000 of"):
        parse_predict({"instances": rows}, {"x": tf.float32}, reading=Reading(spare_bytes=2 * MEBIBYTE))


def test_members_of_one_object_cost_their_names_too():
    one, rows = ({str(number): 1 for number in range(300_000)}, [dict.fromkeys("abc", 1)] * 100_000)
    with pytest.raises(ServingError, match="would take"):
        check_cost(json.dumps({"instances": [one]}).encode(), 55_000_000, 100_000)
    check_cost(json.dumps({"instances": rows}).encode(), 55_000_000, 100_000)


def test_a_context_counts_in_every_example():
    body = {"context": {"c": "a" * 100_000}, "examples": [{}] * 1000}
    with pytest.raises(ServingError, match=r"A context of \d+ bytes in each of 1000 examples"):
        parse_examples(body)
    body["examples"] = body["examples"][:150]
    assert len(parse_examples(body)) == 150


@pytest.mark.parametrize(("item", "least"), [(b'""', 184), (b"{}", 272), (b"[]", 176), (b"1", 112)])
def test_each_kind_of_value_is_counted_with_what_the_most_expensive_parser_takes_for_it(item, least):
    body = b'{"instances": [' + b",".join([item] * 20_000) + b"]}"
    with pytest.raises(ServingError, match="would take"):
        check_cost(body, 20_000 * least - 4 * len(body), 100_000)
    check_cost(body, 20_000 * (least + 250), 100_000)
