"""The server's fast parsers against slow reference parsers."""

import binascii
import json
import math
import random
import re

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import monitoring

from ctrpipe.serving.server import json_body, tensors
from ctrpipe.serving.server.body_cost import CHECK_EVERY, Reading
from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.json_body import _JsonParser, has_booleans, parse_body, parse_unusual_body, parse_usual_body
from ctrpipe.serving.server.json_response import error_body, format_predict
from ctrpipe.serving.server.metrics import Metrics
from tests.serving.longest_hold import longest_hold

LEAVES = [
    0,
    1,
    -1,
    2**31,
    -(2**31) - 1,
    2**63,
    2**64 - 1,
    1.0,
    -2.5,
    1e300,
    True,
    False,
    None,
    "",
    "é",
    {"b64": "YQ=="},
]
DTYPES = [tf.int8, tf.int32, tf.int64, tf.uint8, tf.uint32, tf.uint64, tf.float32, tf.float64, tf.bool, tf.string]


def random_value(chance, depth=0):
    """Mostly rectangular lists of one type, with an odd one now and then."""
    leaf = chance.choice(LEAVES)
    size = [chance.randrange(1, 4) for _ in range(2)]
    rows = [[leaf if chance.random() < 0.95 else chance.choice(LEAVES) for _ in range(size[1])] for _ in range(size[0])]
    kind = chance.random()
    if kind < 0.3:
        return rows[0]
    if kind < 0.4:
        return [rows, rows]
    if kind < 0.5:
        return [rows[0], leaf]
    if kind < 0.6:
        return [rows[0], rows[0] + rows[0]]
    return rows


def outcome(value, dtype):
    try:
        found = tensors.to_tensor(value, dtype)
    except ServingError as error:
        return error.code, error.message
    return found.dtype, found.shape, found.tolist()


def test_values_read_in_bulk_are_those_read_one_by_one(monkeypatch):
    chance = random.Random(0)
    cases = [(random_value(chance), chance.choice(DTYPES)) for _ in range(5000)]

    def no_bulk(*_):
        raise tensors._Unexpected()

    fast = [outcome(value, dtype) for value, dtype in cases]
    monkeypatch.setattr(tensors, "_bulk", no_bulk)
    slow = [outcome(value, dtype) for value, dtype in cases]
    assert fast == slow
    assert 1000 < sum(isinstance(found[0], np.dtype) for found in fast) < 4000


def rows_outcome(rows, dtypes):
    try:
        found, by_row = tensors.parse_predict({"instances": rows}, dtypes)
    except ServingError as error:
        return error.code, error.message
    return by_row, {name: (array.dtype, array.tolist()) for name, array in found.items()}


def test_rows_read_in_bulk_are_those_read_one_by_one(monkeypatch):
    """Of any dtypes, with vectors and base64 among the columns, and with values of another kind."""
    chance = random.Random(0)
    values = {
        tf.string: ["a", "é"],
        tf.float32: [1, 2.5],
        tf.float64: [0.1, 3],
        tf.int64: [7, -(2**40)],
        tf.bool: [True],
    }
    odd = ["x", 1, 1.5, False, None, [1.0], {"b64": "YQ=="}]
    cases = []
    for _ in range(1000):
        dtypes = {f"c{number}": chance.choice(list(values)) for number in range(chance.randrange(2, 7))}
        vectors = {name for name in dtypes if chance.random() < 0.2}
        rows = [
            {
                name: [chance.choice(values[dtype])] * 2 if name in vectors else chance.choice(values[dtype])
                for name, dtype in dtypes.items()
            }
            for _ in range(chance.choice([1, 2, 5]))
        ]
        for name in dtypes if chance.random() < 0.3 else ():
            if dtypes[name] == tf.string and chance.random() < 0.5:
                for row in rows:
                    row[name] = {"b64": "YQ=="}
        if chance.random() < 0.3:
            chance.choice(rows)[chance.choice(list(dtypes))] = chance.choice(odd)
        cases.append((rows, dtypes))

    def no_bulk(*_):
        raise tensors._Unexpected()

    few = [rows_outcome(*case) for case in cases]
    monkeypatch.setattr(tensors, "_FEW_ROWS", 0)
    many = [rows_outcome(*case) for case in cases]
    monkeypatch.setattr(tensors, "_rows_in_bulk", no_bulk)
    assert few == many == [rows_outcome(*case) for case in cases]
    assert 500 < sum(found[0] is True for found in few) < 900


def random_document(chance, depth=0):
    kind = chance.random()
    if kind < 0.2 and depth < 5:
        return [random_document(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind < 0.4 and depth < 5:
        return {
            str(key) + chance.choice('é"\\'): random_document(chance, depth + 1) for key in range(chance.randrange(4))
        }
    return chance.choice(
        [1, -1, 0, 1.5, -2e-9, 1e22, True, False, None, "", 'é\n\t"\\/😀\x7f', 2**63, -(2**63), 2**64 - 1]
    )


def test_the_iterative_parser_agrees_with_json():
    chance = random.Random(0)
    for _ in range(1000):
        document = {"k": random_document(chance)}
        text = json.dumps(document, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 2])).encode()
        assert _JsonParser(text).value() == document == parse_body(text) == parse_unusual_body(text)


def with_nans(chance, document):
    """A copy of a document in which some values are NaN."""
    if chance.random() < 0.2:
        return math.nan
    if isinstance(document, dict):
        return {key: with_nans(chance, value) for key, value in document.items()}
    return [with_nans(chance, value) for value in document] if isinstance(document, list) else document


def test_nan_is_read_as_the_scanner_reads_it():
    """NaN in values, next to nulls, and as a word within strings and names."""
    chance, usual = random.Random(0), 0
    for _ in range(1000):
        document = {"k": with_nans(chance, random_document(chance)), "NaN": chance.choice([1, None, "NaN", math.nan])}
        document |= {} if chance.random() < 0.5 else {"x": ["a", ",NaN,", ':NaN,"'][chance.randrange(3)]}
        if chance.random() < 0.7:
            del document["NaN"]
        if chance.random() < 0.5:  # rows, which are read faster; some are none, and some values are lists
            document["instances"] = [with_nans(chance, random_document(chance)) for _ in range(3)]
        if chance.random() < 0.5:
            document["long"] = "NAN aN ul" * 200
        text = json.dumps(document, indent=chance.choice([None, 2])).encode()
        expected = repr(parse_unusual_body(text))
        assert repr(document) == expected == repr(parse_body(text))
        found = parse_usual_body(text)
        usual += found is not None and "nan" in expected
        assert found is None or repr(found) == expected
    assert usual > 100


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": [NaN, null]}',
        b'{"a": ["NaN"], "b": NaN}',
        b'{"a": -NaN}',
        b'{"a": NaNs}',
        b'{"a": [NaN], "a": [NaN]}',
        b"[NaN]",
        b'{"a": ' + b"[" * 990 + b"NaN" + b"]" * 990 + b"}",
        b'{"a": [NaN, 0e309]}',
    ],
)
def test_what_has_more_than_nan_goes_to_the_scanner(body):
    assert parse_usual_body(body) is None


@pytest.mark.parametrize("text", ["NaN", "BaNaNa", "a,NaN"])
@pytest.mark.parametrize("others", ["", "x" * 2000])
def test_the_word_nan_in_strings_alone_is_usual(text, others):
    """A client may write a missing category as the text NaN."""
    document = {"instances": [{"a": text, "b": 1.5}, {"a": "NaN", "b": others}]}
    assert parse_usual_body(json.dumps(document).encode()) == document


def test_words_are_found_across_the_pieces_of_a_long_body(monkeypatch):
    monkeypatch.setattr(json_body, "_PIECE_BYTES", 1 << 12)
    for shift in range(-12, 0):  # the list begins at the eighth byte
        filling = "0, " * ((json_body._PIECE_BYTES + shift) // 3) + " " * (shift % 3)
        for word, found in (("true", True), ("0", False)):
            assert has_booleans(f'{{"a": [{filling}{word}]}}'.encode()) == found
        with pytest.raises(ServingError, match="Number too big"):
            parse_body(f'{{"a": [{filling}0e309]}}'.encode())


def test_a_body_that_is_full_of_zeros_with_a_letter_is_searched_as_a_whole(monkeypatch):
    """To look at each place by itself would take seconds, and memory of many times the body."""

    class Whole:
        search = json_body._ZERO_TIMES_A_POWER.search

    monkeypatch.setattr(json_body, "_ZERO_TIMES_A_POWER", Whole)
    full = b'{"a": "' + b"0e" * (1 << 20) + b'"'
    assert parse_usual_body(full + b"}") is not None
    assert parse_usual_body(full + b', "b": 0e309}') is None


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_cut_body_is_an_error_with_an_offset(cut):
    body = '{"inputs": [1.5, -2e3, {"é": "\\u00e9"}]}'.encode()
    with pytest.raises(ServingError, match=rf"JSON Parse error: .* at offset: ({'|'.join(map(str, range(cut + 1)))})$"):
        parse_body(body[:cut])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_decimals_read_back_as_the_same_values(dtype):
    values = (
        np.random.default_rng(0).integers(0, 256, 8 * 20_000, np.uint8).view(dtype)
    )  # every exponent, NaN, subnormal
    found = json.loads(format_predict({"y": values}, by_row=False))["outputs"]
    np.testing.assert_array_equal(np.array(found, dtype), values)


def test_rows_of_many_outputs_are_the_columns_turned():
    outputs = {"a": np.arange(6, dtype=np.float32).reshape(3, 2), "b": np.array([b"x", b"y", b"z"], object)}
    found = json.loads(format_predict(outputs, by_row=True))["predictions"]
    assert found == [{"a": [2.0 * row, 2.0 * row + 1], "b": "xyz"[row]} for row in range(3)]
    empty = {name: value[:0] for name, value in outputs.items()}
    assert json.loads(format_predict(empty, by_row=True)) == {"predictions": []}


def test_histograms_count_as_tensorflows_do():
    reference = monitoring.Sampler("/ctrpipe/test", monitoring.ExponentialBuckets(10, 1.8, 33), "for a test")
    metrics = Metrics()
    metrics.add_model("m")
    for micros in (0, 9, 10, 11, 18, 19, 1000, 1_500_000, 10**12):  # 10 and 18 are limits
        reference.get_cell().add(micros)
        metrics.record_request("m", "predict", "REST", "OK", micros / 1e6)
    lines = metrics.page().decode().splitlines()
    cumulative = [int(line.split()[-1]) for line in lines if "request_latency_bucket" in line]
    counts = np.diff([0, *cumulative]).tolist()
    expected = [int(count) for count in reference.get_cell().value().bucket]
    assert counts == expected


def test_a_metrics_first_value_is_that_of_its_first_labels():
    metrics = Metrics()
    count, latency = "/tensorflow/serving/request_count", "/tensorflow/serving/request_latency"
    assert metrics.first_values([count]) == {count: 0}
    metrics.add_model("m")
    for status, times in (("OK", 3), ("INTERNAL", 2)):
        for _ in range(times):
            metrics.record_request("m", "predict", "REST", status, 0.001)
    assert metrics.first_values([count, latency, "none", count]) == {count: 2, latency: 0, "none": 0}


def test_label_values_are_escaped():
    metrics = Metrics()
    metrics.add_model('a"b\\c\nd')
    metrics.record_request('a"b\\c\nd', "predict", "REST", "OK", 0.001)
    line = next(line for line in metrics.page().decode().splitlines() if "request_count{" in line)
    assert line == r':tensorflow:serving:request_count{model_name="a\"b\\c\nd",status="OK"} 1'


def test_names_that_clients_make_up_share_one_series():
    metrics = Metrics()
    metrics.add_model("ctr")
    for number in range(5000):
        metrics.record_request(f"made-up-{number}", "predict", "REST", "NOT_FOUND", 0.001)
    metrics.record_request("ctr", "predict", "REST", "OK", 0.001)
    counts = [line for line in metrics.page().decode().splitlines() if "request_count{" in line]
    assert counts == [
        ':tensorflow:serving:request_count{model_name="",status="NOT_FOUND"} 5000',
        ':tensorflow:serving:request_count{model_name="ctr",status="OK"} 1',
    ]


def test_numbers_that_no_double_holds_are_an_error():
    for text in ("1e999", "1" * 400, "1" * 5000, "-1e999"):
        with pytest.raises(ServingError, match="Number too big to be stored in double. at offset: 5"):
            parse_body(b'{"a":%s}' % text.encode())
    assert parse_body(b'{"a": NaN, "b": 100000000000000000000000}')["b"] == 1e23
    assert math.isnan(parse_body(b'{"a": NaN}')["a"])


def long_body(item, last="0", name="inputs"):
    """A body long enough for the search by pairs of letters."""
    return f'{{"{name}": [{item}, {"12345, " * 300}{last}]}}'.encode()


@pytest.mark.parametrize("word", ["true", "false"])
@pytest.mark.parametrize("others", ["0", '"rural 0e 0E+"'])
def test_booleans_of_a_long_body_are_seen_wherever_they_stand(word, others):
    assert has_booleans(long_body(others, word)) and has_booleans(long_body(word, others))
    assert has_booleans(f'{{"a": {word}}}'.encode())
    assert not has_booleans(long_body(others, "1e5"))


@pytest.mark.parametrize("number", ["0e309", "0E309", "0e+400"])
@pytest.mark.parametrize("others", ["0", '"rural 0e 0E+"'])
def test_zero_times_a_great_power_of_a_long_body_is_refused_wherever_it_stands(number, others):
    for body in (long_body(number, others), long_body(others, number)):
        with pytest.raises(ServingError, match="Number too big"):
            parse_body(body)
    assert parse_body(long_body("0e3", others))["inputs"][0] == 0


def test_the_scanner_stops_at_the_deadline():
    body = b'{"instances": [' + b"0.12345678901234567, " * (2 * CHECK_EVERY) + b"0], " + b'"a": 1, "a": 2}'
    assert len(parse_unusual_body(body)["instances"]) == 2 * CHECK_EVERY + 1
    looks = []

    def is_over():
        looks.append(True)
        return len(looks) > 2  # it goes on until the scanner has begun

    with pytest.raises(ServingError, match="Timed out"):
        parse_unusual_body(body, Reading(is_over))
    assert len(looks) == 3


@pytest.mark.parametrize("length", [262_143, 262_144, 262_145, 3_000_000])
def test_an_error_of_megabytes_is_cut(length):
    text = "é" * length
    shown = json.loads(error_body(text))["error"]
    assert shown == (text if length <= 262_144 else "é" * 262_144 + "...TRUNCATED")


@pytest.mark.parametrize("text", [b"a", b"\xff"])  # the scanner's, and that of RapidJSON's own parser
def test_names_that_a_bodys_objects_repeat_are_counted(monkeypatch, text):
    """300,000 members of one name, 3.5 kB of gzip, took five seconds of a processor."""
    monkeypatch.setattr("ctrpipe.serving.server.json_values.MOST_REPEATED", 100)
    rows = b",".join([b'{"x": 1, "x": 2, "x": 3, "y": 4}'] * 50)
    body = b'{"instances": [%b], "text": "%b"}' % (rows, text)
    assert len(parse_body(body)["instances"]) == 50
    with pytest.raises(ServingError, match="repeat more than 100 names") as refused:
        parse_body(body.replace(b'"y": 4', b'"x": 4', 1))
    assert refused.value.code == "INVALID_ARGUMENT"


def test_base64_is_read_as_the_pattern_of_abseil_says():
    chance, taken = random.Random(5), 0
    for _ in range(3000):
        text = "".join(
            chance.choice(
                ["A", "b", "9", "+", "/", "A", "=", ".", " ", "\n", "!", "\udcff", "\ud800"][
                    : chance.choice([5, 9, 13])
                ]
            )
            for _ in range(chance.randrange(9))
        )
        match = re.fullmatch("([A-Za-z0-9+/]*)([=.]*)", re.sub("[ \\n]", "", text))
        missing = -len(match[1]) % 4 if match else 3
        if missing == 3 or len(match[2]) not in (0, missing):
            with pytest.raises(ServingError, match="Unable to base64 decode"):
                tensors.decode_base64(text)
        else:
            taken += 1
            assert tensors.decode_base64(text) == binascii.a2b_base64(match[1] + "=" * missing)
    assert taken > 300


def test_broken_base64_does_not_keep_the_interpreter():
    def refused():
        with pytest.raises(ServingError, match="Unable to base64 decode"):
            tensors.decode_base64("A" * 4_000_000 + "!")

    assert min(longest_hold(refused) for _ in range(3)) < 0.06  # 0.2 s where a pattern tries every shorter beginning
