"""JSON values and the types of tensors (P15-P20, P22)."""

import base64
import math

import numpy as np
import pytest

INTEGERS = {
    "int8": (-(2**31), 2**31 - 1),
    "int16": (-(2**31), 2**31 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "uint8": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1),
    "uint64": (0, 2**64 - 1),
}


def numbers(**changes):
    inputs = {name: [1] for name in (*INTEGERS, "float32", "float64")}
    return {"signature_name": "numbers", "inputs": {**inputs, **changes}}


def mixed(**changes):
    return {"signature_name": "mixed", "inputs": {"f": [1.5], "i": [2], "s": ["a"], "b": [True], **changes}}


def test_P15_floats_take_integers_and_round(predict):
    values = [2, 4.5, 1e300, -1e300, 1435774380, 2**63, 0.1]
    status, answer = predict(numbers(float32=values, float64=values))
    assert status == 200
    assert answer["outputs"]["float64"] == values
    rounded = [2.0, 4.5, math.inf, -math.inf, 1435774336.0, 2.0**63, 0.1]
    np.testing.assert_array_equal(np.array(answer["outputs"]["float32"], np.float32), np.array(rounded, np.float32))


@pytest.mark.parametrize(
    ("name", "smallest", "below"),
    [  # the processor rounds to 24 bits before it compares: half of the last one rounds up
        ("float32", 2.0**-126 - 2.0**-151, [2.0**-126 - 2.0**-150, 1e-40, 1.4e-45]),
        ("float64", 2.0**-1022, [2.225073858507201e-308, 1e-310, 5e-324]),
    ],
)
def test_P15_subnormal_numbers_are_zeros(predict, name, smallest, below):
    status, answer = predict(numbers(**{name: [smallest, 0.1, *below, *(-value for value in below)]}))
    found = np.array(answer["outputs"][name], name)
    assert status == 200
    np.testing.assert_array_equal(found[:2], np.array([smallest, 0.1], name))
    assert not found[2:].any() and np.signbit(found[2:]).tolist() == [False] * 3 + [True] * 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1e-40", 0), ("-1E-40", 0), (f"0.{'0' * 37}1", 0), (f"[0.{'0' * 37}1]", [0]), ("[2e-38]", [2e-38])],
)
def test_P15_a_subnormal_number_is_zero_however_it_is_written(predict, text, expected):
    status, answer = predict(f'{{"signature_name": "any_shape", "inputs": {text}}}')
    assert (status, answer["outputs"]) == (200, pytest.approx(expected, rel=1e-6, abs=0))


def test_P15_J9_an_error_shows_a_subnormal_number_as_zero(error):
    assert error(numbers(int8=[-1e-310]))[1].startswith("JSON Value: -0.0 Type: Number")


@pytest.mark.parametrize("name", INTEGERS)
def test_P16_integers_in_range(predict, error, name):
    low, high = INTEGERS[name]
    dtype = np.dtype(name)
    status, answer = predict(numbers(**{name: [low, high]}))
    expected = [
        int(value) for value in np.array([low, high], object).astype(np.int64 if low else np.uint64).astype(dtype)
    ]
    assert status == 200 and answer["outputs"][name] == expected  # narrow types wrap
    for value in (low - 1, high + 1):
        status, message = error(numbers(**{name: [1, value]}))
        assert status == 400 and message.endswith(f"Type: Number is not of expected type: {name}")


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    ("value", "shown"),
    [(1.0, "1.0 Type: Number"), (True, "true Type: True"), ("1", '"1" Type: String'), (None, "null Type: Null")],
)
def test_P16_P17_integers_are_json_integers(error, name, value, shown):
    expected = (400, f"JSON Value: {shown} is not of expected type: {name}")
    assert error(numbers(**{name: [value]})) == expected
    assert error(numbers(**{name: [1, value]})) == expected


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"b": [1]}, "1 Type: Number is not of expected type: bool"),
        ({"b": [0.0]}, "0.0 Type: Number is not of expected type: bool"),
        ({"s": [1]}, "1 Type: Number is not of expected type: string"),
        ({"s": [False]}, "false Type: False is not of expected type: string"),
        ({"f": ["1"]}, '"1" Type: String is not of expected type: float'),
        ({"f": [True]}, "true Type: True is not of expected type: float"),
        ({"f": [None]}, "null Type: Null is not of expected type: float"),
        ({"i": [None]}, "null Type: Null is not of expected type: int32"),
        ({"s": [None]}, "null Type: Null is not of expected type: string"),
        ({"b": [None]}, "null Type: Null is not of expected type: bool"),
    ],
)
def test_P17_booleans_strings_and_null_are_strict(error, changes, shown):
    assert error(mixed(**changes)) == (400, f"JSON Value: {shown}")


def test_P17_booleans_and_strings(predict):
    body = mixed(f=[1, 2], i=[3, 4], s=["é", ""], b=[True, False])
    outputs = predict(body)[1]["outputs"]
    assert outputs["flag"] == [True, False] and outputs["text"] == ["é", ""]


def test_P18_base64(predict):
    texts = [b"", b"a", b"\x00\xff", bytes(range(256))]
    body = {"signature_name": "strings", "inputs": [{"b64": base64.b64encode(text).decode()} for text in texts]}
    assert [base64.b64decode(item["b64"]) for item in predict(body)[1]["outputs"]] == texts
    body["inputs"] = ["plain", {"b64": "YQ=="}]
    assert [base64.b64decode(item["b64"]) for item in predict(body)[1]["outputs"]] == [b"plain", b"a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("aGV.", b"he"), ("aGU", b"he"), ("YQ..", b"a"), ("YQ=.", b"a"), ("Y Q =\t=\n", b"a"), ("YR==", b"a"), ("", b"")],
)
def test_P18_base64_as_abseil_takes_it(predict, text, expected):
    answer = predict({"signature_name": "text", "inputs": [{"b64": text}]})
    assert answer == (200, {"outputs": [expected.decode()]})


@pytest.mark.parametrize(
    "text", ["!", "Y", "YQ==YQ==!", "é", "YQ=", "YQ===", "YWJj=", "YWJj====", "=", "YQ=a", "-_-_", "YQ==\u00a0"]
)
def test_P18_bad_base64(error, text):
    assert error({"signature_name": "strings", "inputs": [{"b64": text}]}) == (400, "Unable to base64 decode")


@pytest.mark.parametrize("value", [{"x": "y"}, {"b64": 1}, {"b64": "YQ==", "x": 1}, {}])
def test_P18_other_objects_are_no_strings(error, value):
    status, message = error({"signature_name": "strings", "inputs": ["a", value]})
    assert status == 400 and message.startswith("JSON Value: {")
    assert message.endswith(" not formatted correctly for base64 data")


def test_P18_base64_is_for_strings_alone(error):
    status, message = error(mixed(f=[{"b64": "YQ=="}]))
    assert status == 400 and message.endswith("Type: Object is not of expected type: float")


def test_P19_types_without_json(error):
    expected = (501, "Conversion of JSON Value: 1.5 to type: half")
    assert error({"signature_name": "half", "inputs": [1.5]}) == expected
    reason = f"Failed to process element: 0 of 'instances' list. Error: UNIMPLEMENTED: {expected[1]}"
    assert error({"signature_name": "half", "instances": [1.5]}) == (400, reason)


def test_P19_no_values_of_a_type_without_json(predict):
    assert predict({"signature_name": "half", "inputs": []}) == (200, {"outputs": []})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([1.0, [2.0]], "Encountered list at unexpected level: 1 expected < 1"),
        ([[1.0], [[2.0]]], "Encountered list at unexpected level: 2 expected < 2"),
        ([[1.0, 2.0], [1.0]], "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        ([[1.0], 2.5], "JSON Value: 2.5 found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
        ([[1.0, 2.0], [[3.0], [4.0]]], "Encountered list at unexpected level: 2 expected < 2"),
    ],
)
def test_P20_nesting(error, inputs, message):
    assert error({"signature_name": "any_shape", "inputs": inputs}) == (400, message)


@pytest.mark.parametrize("inputs", [[["a"], "b"], ["a", ["b"]], ["ab", ["c", "d"]], [["a", "b"], "cd"]])
def test_P20_strings_are_no_lists(error, inputs):
    status, message = error({"signature_name": "strings", "inputs": inputs})
    assert status == 400 and "level" in message


def test_P22_output_filters_are_ignored(predict):
    body = {"signature_name": "scalar", "inputs": [1.0], "output_filter": ["y"]}
    assert predict(body) == (200, {"outputs": {"scalar": 1.0, "y": [1.0]}})
