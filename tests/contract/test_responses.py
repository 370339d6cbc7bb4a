"""Predict responses (O1-O10)."""

import http.client
import json
import re
import urllib.parse

import numpy as np
import pytest

from tests.contract.conftest import MODEL


@pytest.fixture
def raw(base_url):
    """raw(body) -> the bytes of the answer."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base_url).netloc)

    def raw(body):
        connection.request("POST", f"{MODEL}:predict", body if isinstance(body, str) else json.dumps(body))
        return connection.getresponse().read()

    yield raw
    connection.close()


def test_O1_the_key_follows_the_format(predict):
    assert predict({"instances": [1.0]}) == (200, {"predictions": [2.5]})
    assert predict({"inputs": [1.0]}) == (200, {"outputs": [2.5]})


def test_O2_several_outputs_have_their_names(predict):
    inputs = {"f": [1.5, 2.5], "i": [2, 3], "s": ["a", "b"], "b": [True, False]}
    status, answer = predict({"signature_name": "mixed", "inputs": inputs})
    outputs = {
        "flag": [True, False],
        "s_bytes": [{"b64": "YQ=="}, {"b64": "Yg=="}],
        "sum": [3.5, 5.5],
        "text": ["a", "b"],
    }
    assert (status, answer) == (200, {"outputs": outputs})
    rows = [{name: values[at] for name, values in inputs.items()} for at in range(2)]
    status, answer = predict({"signature_name": "mixed", "instances": rows})
    assert (status, answer) == (
        200,
        {"predictions": [{name: values[at] for name, values in outputs.items()} for at in range(2)]},
    )


def test_O3_rows_need_one_batch_dimension(predict, error):
    expected = (400, "Tensor name: scalar has no shape information ")
    assert error({"signature_name": "scalar", "instances": [1.0]}) == expected
    status, message = error({"signature_name": "unequal", "instances": [1.0, 2.0]})
    assert status == 400
    assert re.fullmatch(r"Tensor name: (first|second) has inconsistent batch size: [24] expecting: [24]", message)
    assert predict({"signature_name": "scalar", "inputs": [1.0]})[1] == {"outputs": {"scalar": 1.0, "y": [1.0]}}


def test_O4_shapes_are_kept(predict):
    body = {"signature_name": "matrix", "instances": [[1.0, 2.0], [3.0, 4.0]]}
    assert predict(body) == (200, {"predictions": [[1.0], [3.0]]})
    body = {"signature_name": "any_shape", "inputs": [[[1.0], [2.0]], [[3.0], [4.0]]]}
    assert predict(body) == (200, {"outputs": [[[1.0], [2.0]], [[3.0], [4.0]]]})


def test_O5_floats_read_back(predict):
    scale = np.float32(10) ** np.arange(-30, 30).repeat(10)
    values = (np.random.default_rng(0).normal(size=600) * scale).astype(np.float32)
    status, answer = predict({"signature_name": "any_shape", "inputs": values.astype(float).tolist()})
    assert status == 200
    np.testing.assert_array_equal(np.array(answer["outputs"], np.float32), values)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("3", b"3.0"),
        ("0.1", b"0.1"),
        ("0.33333334", b"0.333333343"),
        ("1234567", b"1234567.0"),
        ("0.000012345678", b"1.23456784e-05"),
        ("0", b"0.0"),
        ("-0.0", b"-0.0"),
        ("123456", b"123456.0"),
        ("9000000", b"9e+06"),
        ("0.00003", b"3e-05"),
        ("0.0001", b"0.0001"),
        ("1e38", b"1e+38"),
        ("NaN", b"NaN"),
        ("Inf", b"Infinity"),
        ("-Infinity", b"-Infinity"),
    ],
)
def test_O5_formats_of_floats(raw, value, text):
    found = raw(f'{{"signature_name": "any_shape", "inputs": [[0.5, {value}], [{value}, 0.5]]}}')
    body = b"".join(found.split())
    assert body == b'{"outputs":[[0.5,%s],[%s,0.5]]}' % (text, text)


def test_O6_bytes_and_text(predict, raw):
    assert predict({"signature_name": "strings", "inputs": ["é"]}) == (200, {"outputs": [{"b64": "w6k="}]})
    assert predict({"signature_name": "text", "inputs": ['é"\\\n']}) == (200, {"outputs": ['é"\\\n']})
    found = raw({"signature_name": "text", "inputs": [{"b64": "/8Op"}]})  # ff c3 a9, which is not UTF-8
    assert b'"\xff\xc3\xa9"' in found


def test_O7_no_rows(predict):
    assert predict({"inputs": []}) == (200, {"outputs": []})
    assert predict({"signature_name": "any_shape", "inputs": [[], []]}) == (200, {"outputs": [[], []]})


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"instances": [1.0, 2.0]}, '{\n    "predictions": [2.5, 3.0\n    ]\n}'),
        (
            {"signature_name": "matrix", "instances": [[1.0, 2.0], [3.0, 4.0]]},
            '{\n    "predictions": [[1.0], [3.0]\n    ]\n}',
        ),
        ({"inputs": [1.0, 2.0]}, '{\n    "outputs": [\n        2.5,\n        3.0\n    ]\n}'),
        (
            {"signature_name": "any_shape", "inputs": [[1.0, 2.0]]},
            '{\n    "outputs": [\n        [\n            1.0,\n            2.0\n        ]\n    ]\n}',
        ),
        (
            {"signature_name": "strings", "instances": ["a"]},
            '{\n    "predictions": [{\n            "b64": "YQ=="\n        }\n    ]\n}',
        ),
        ({"inputs": []}, '{\n    "outputs": []\n}'),
        ({}, "{\n    \"error\": \"Missing 'inputs' or 'instances' key\"\n}"),
    ],
)
def test_O8_lines_and_spaces(raw, body, expected):
    assert raw(body).decode() == expected


def test_O8_rows_of_several_outputs(raw):
    found = raw({"signature_name": "scalar", "inputs": [1.0]}).decode()
    members = ['        "scalar": 1.0', '        "y": [\n            1.0\n        ]']
    # TF Serving's order of the outputs is arbitrary.
    both = [",\n".join(members), ",\n".join(reversed(members))]
    assert found in [f'{{\n    "outputs": {{\n{text}\n    }}\n}}' for text in both]


def test_O9_types_that_json_cannot_hold(error):
    expected = (400, "Failed to write JSON value for tensor type: bfloat16")
    assert error({"signature_name": "brain_float", "inputs": [1.0]}) == expected
    assert error({"signature_name": "brain_float", "instances": [1.0]}) == expected


def test_O9_no_values_of_such_a_type(predict):
    assert predict({"signature_name": "brain_float", "inputs": []}) == (200, {"outputs": []})


def test_O10_a_response_does_not_name_the_version(predict):
    assert set(predict({"instances": [1.0]})[1]) == {"predictions"}


def test_integers_of_all_widths(predict):
    names = ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
    inputs = {name: [[7], [100]] for name in names} | {"float32": [[1]], "float64": [[1]]}
    shaped = {name: value[0] for name, value in inputs.items()}
    outputs = predict({"signature_name": "numbers", "inputs": shaped})[1]["outputs"]
    assert all(outputs[name] == [7] for name in names)
