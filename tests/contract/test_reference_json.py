"""What util/json_tensor_test.cc of TF Serving asks of JSON's reader and writer, and what it expects; no server runs.

The ids are the names of the tests there. An error is found by the words that they look for.
"""

import json
import math

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.json_body import parse_body
from ctrpipe.serving.server.json_examples import format_classify, format_regress, parse_examples
from ctrpipe.serving.server.json_response import error_body, format_predict
from ctrpipe.serving.server.rest import _signature_name
from ctrpipe.serving.server.tensors import parse_predict

INT32 = {"default": tf.int32}
FLOAT = {"default": tf.float32}
DOUBLE = {"default": tf.float64}
TEXT = {"default": tf.string}
INT_AND_TEXT = {"int_tensor": tf.int32, "str_tensor": tf.string}
FOUR = {**INT_AND_TEXT, "float_tensor": tf.float32, "dbl_tensor": tf.float64}
MATRIX = np.int32([[1, 2], [3, 4], [5, 6]])
OTHER = np.int32([[7, 8], [9, 0], [1, 2]])
MAX, MIN = "1.79769e+308", "2.22507e-308"  # the highest and the lowest double, as absl::Substitute writes them


def read(body, dtypes):
    parsed = parse_body(body.encode(), reads_doubles=tf.float64 in dtypes.values())
    return _signature_name(parsed), *parse_predict(parsed, dtypes)


def texts(*values):
    return np.array(values, object)


@pytest.mark.parametrize(
    ("body", "dtypes", "by_row", "expected"),
    [
        pytest.param('{"instances": [[1,2],[3,4],[5,6]]}', INT32, True, {"default": MATRIX}, id="SingleUnnamedTensor"),
        pytest.param(
            '{"instances":[1], "nested":' + "[" * 500_000 + "]" * 500_000 + "}",
            INT32,
            True,
            {"default": np.int32([1])},
            id="DeeplyNestedWellFormed",
        ),
        pytest.param(
            '{"instances": [1, 2.0, 3, 4, 5.003, 0.007, 0.0]}',
            FLOAT,
            True,
            {"default": np.float32([1, 2, 3, 4, 5.003, 0.007, 0])},
            id="MixedInputForFloatTensor",
        ),
        pytest.param(
            '{"instances": [1.0, 2, 3, 4, 0.662, 0, 0.0]}',
            DOUBLE,
            True,
            {"default": np.array([1, 2, 3, 4, 0.662, 0, 0])},
            id="MixedInputForDoubleTensor",
        ),
        *[
            pytest.param(
                f'{{"instances": [{number}]}}',
                FLOAT,
                True,
                {"default": np.float32([1435774336])},
                id="FloatTensorWithPrecisionLoss",
            )
            for number in ("1435774380", "1435774380.0")
        ],
        *[
            pytest.param(
                f'{{ "instances": [{number}] }}',
                FLOAT,
                True,
                {"default": np.float32([value])},
                id=f"FloatTensorThatExceeds{name}",
            )
            for number, value, name in (
                (MAX, math.inf, "MaxReturnsInf"),
                (f"-{MAX}", -math.inf, "MaxReturnsInf"),
                (MIN, 0.0, "MinReturnsZero"),
                (f"-{MIN}", -0.0, "MinReturnsZero"),
            )
        ],
        pytest.param(
            '{"signature_name": "predict_images", "instances": [[1,2]]}',
            INT32,
            True,
            {"": "predict_images", "default": np.int32([[1, 2]])},
            id="SingleUnnamedTensorWithSignature",
        ),
        pytest.param(
            '{"instances": [[1,2],[3,4],[5,6]]}X',
            INT32,
            True,
            {"default": MATRIX},
            id="TensorFromNonNullTerminatedBuffer",
        ),
        pytest.param(
            '{"instances": [ { "b64" : "aGVsbG8=" }, { "b64": "d29ybGQ=" } ]}',
            TEXT,
            True,
            {"default": texts(b"hello", b"world")},
            id="SingleUnnamedTensorBase64Scalars",
        ),
        pytest.param(
            '{"instances": [ [{ "b64" : "aGVsbG8=" }], [{ "b64": "d29ybGQ=" }] ]}',
            TEXT,
            True,
            {"default": texts([b"hello"], [b"world"])},
            id="SingleUnnamedTensorBase64Lists",
        ),
        pytest.param(
            '{"instances": [{"default": [ [{ "b64" : "aGVsbG8=" }], [{ "b64": "d29ybGQ=" }] ]}]}',
            TEXT,
            True,
            {"default": texts([[b"hello"], [b"world"]])},
            id="SingleNamedTensorBase64",
        ),
        pytest.param(
            """{"instances": [
                {"int_tensor": [[1,2],[3,4],[5,6]], "str_tensor": ["foo", "bar"], "float_tensor": [1.0, NaN],
                 "dbl_tensor": [NaN]},
                {"int_tensor": [[7,8],[9,0],[1,2]], "str_tensor": ["baz", "bat"], "float_tensor": [2.0, Infinity],
                 "dbl_tensor": [2.0]}]}""",
            FOUR,
            True,
            {
                "int_tensor": np.stack([MATRIX, OTHER]),
                "str_tensor": texts([b"foo", b"bar"], [b"baz", b"bat"]),
                "float_tensor": np.float32([[1, math.nan], [2, math.inf]]),
                "dbl_tensor": np.array([[math.nan], [2]]),
            },
            id="MultipleNamedTensor",
        ),
        *[
            pytest.param(
                body,
                {"int_tensor": tf.int32},
                False,
                {"int_tensor": MATRIX[None]},
                id="SingleUnnamedTensorColumnarFormat",
            )
            for body in ('{"inputs": {"int_tensor": [[[1,2],[3,4],[5,6]]]}}', '{"inputs": [[[1,2],[3,4],[5,6]]]}')
        ],
        pytest.param(
            '{"inputs": {"int_tensor": [[[1,2],[3,4],[5,6]]], "str_tensor": ["foo", "bar"], '
            '"bin_tensor": {"b64" : "aGVsbG8="}}}',
            {**INT_AND_TEXT, "bin_tensor": tf.string},
            False,
            {
                "int_tensor": MATRIX[None],
                "str_tensor": texts(b"foo", b"bar"),
                "bin_tensor": np.array(b"hello", object),
            },
            id="MultipleNamedTensorColumnarFormat",
        ),
    ],
)
def test_J4_J5_J6_P6_P11_P13_P15_P18_requests(body, dtypes, by_row, expected):
    signature, arrays, found_by_row = read(body, dtypes)
    expected = dict(expected)
    assert (signature, found_by_row) == (expected.pop("", ""), by_row)
    assert set(arrays) == set(expected)
    for name, values in expected.items():
        found = np.asarray(arrays[name])
        assert (found.dtype, found.shape) == (values.dtype, values.shape)
        np.testing.assert_array_equal(found, values)
        if values.dtype.kind == "f":
            assert np.signbit(found[found == 0]).tolist() == np.signbit(values[values == 0]).tolist()


ROW = '{"int_tensor": [[1,2],[3,4],[5,6]], "str_tensor": ["foo", "bar"]}'
ONE_ROW_DEEPER = '{"int_tensor": [[[7,8],[9,0],[1,2]]], "str_tensor": ["baz", "bat"]}'


@pytest.mark.parametrize(
    ("body", "dtypes", "words"),
    [
        pytest.param(
            '{"signature_name":' + "[" * 500_000 + "]" * 500_000 + "}",
            INT32,
            "key must be a string value",
            id="DeeplyNestedMalformed",
        ),
        *[
            pytest.param(body, INT32, words, id="SingleUnnamedTensorErrors")
            for body, words in (
                ("", "document is empty"),
                ('{"signature_name": 5, "instances": [[1,2],[3,4],[5,6,7]]}', "must be a string value"),
                (
                    '{"instances": [[1,2],[3,4],[5,6,7]], "inputs": [[1,2],[3,4],[5,6,7]]}',
                    "Not formatted correctly",
                ),
                ('{"instances": [[1,2],[3,4],[5,6,7]]}', "Expecting tensor size"),
                ('{"instances": [[1,2],[3,4],[[5,6]]]}', "Expecting shape"),
                ('{"instances": [1, [1]]}', "Expecting shape"),
                ('{"instances": [[1,2],["a", "b"]]}', "not of expected type"),
            )
        ],
        *[
            pytest.param(f'{{"instances": [{rows}]}}', dtypes, words, id="MultipleNamedTensorErrors")
            for rows, dtypes, words in (
                (f"{ROW}, {ONE_ROW_DEEPER}", INT_AND_TEXT, "Expecting shape"),
                (f"{ROW.replace('[5,6]', '[5,6],[7,8]')}, {ROW}", INT_AND_TEXT, "Expecting tensor size"),
                (f"{ROW}, [1, 20, 30], {ONE_ROW_DEEPER}", INT_AND_TEXT, "Expecting object but got list"),
                (
                    '["baz", "bar"], {"str_tensor": ["baz", "bat"]}',
                    {"str_tensor": tf.string},
                    "Expecting value/list but got object",
                ),
            )
        ],
    ],
)
def test_J1_J7_P1_P7_P10_P16_P20_requests_that_are_refused(body, dtypes, words):
    with pytest.raises(ServingError) as error:
        read(body, dtypes)
    assert error.value.code == "INVALID_ARGUMENT" and words in error.value.message


INTS = {"int_tensor": np.stack([MATRIX, OTHER])}
HELLO = [[{"b64": "aGVsbG8="}, {"b64": "d29ybGQ="}], [{"b64": "dGY="}, {"b64": "c2VydmluZw=="}]]
BYTES = {"str_tensor_bytes": texts([b"hello", b"world"], [b"tf", b"serving"])}
SEVERAL = {
    **INTS,
    **BYTES,
    "str_tensor": texts([b"foo", b"bar"], [b"baz", b"bat"]),
    "float_tensor": np.float32([[1], [2]]),
    "double_scalar_tensor": np.array([8.0, 9.0]),
}
SEVERAL_COLUMNS = {
    "double_scalar_tensor": [8.0, 9.0],
    "float_tensor": [[1.0], [2.0]],
    "int_tensor": INTS["int_tensor"].tolist(),
    "str_tensor": [["foo", "bar"], ["baz", "bat"]],
    "str_tensor_bytes": HELLO,
}


@pytest.mark.parametrize(
    ("outputs", "by_row", "expected"),
    [
        pytest.param(INTS, True, INTS["int_tensor"].tolist(), id="FromJsonSingleTensor"),
        pytest.param(INTS, False, INTS["int_tensor"].tolist(), id="FromJsonSingleTensor"),
        pytest.param({"x": np.int32([1, 2, 3, 4, 5])}, True, [1, 2, 3, 4, 5], id="FromJsonSingleScalarTensor"),
        pytest.param({"x": np.int32([1, 2, 3, 4, 5])}, False, [1, 2, 3, 4, 5], id="FromJsonSingleScalarTensor"),
        pytest.param(BYTES, True, HELLO, id="FromJsonSingleBytesTensor"),
        pytest.param(
            SEVERAL,
            True,
            [{name: values[row] for name, values in SEVERAL_COLUMNS.items()} for row in (0, 1)],
            id="FromJsonMultipleNamedTensors",
        ),
        pytest.param(SEVERAL, False, SEVERAL_COLUMNS, id="FromJsonMultipleNamedTensors"),
        pytest.param({"x": np.zeros([0, 2], np.int32)}, True, [], id="FromJsonSingleZeroBatchTensor"),
        pytest.param(
            {"str_tensor": np.empty([0, 1, 2], object), "float_tensor": np.zeros([0, 3, 4], np.float32)},
            True,
            [],
            id="FromJsonMultipleZeroBatchTensors",
        ),
    ],
)
def test_O1_O2_O4_O6_O7_answers(outputs, by_row, expected):
    assert json.loads(format_predict(outputs, by_row)) == {"predictions" if by_row else "outputs": expected}


@pytest.mark.parametrize(
    ("values", "written"),
    [
        pytest.param(
            [[9000000, 999999, 0.5], [0.0003, 0.00003, 555557.5]],
            ["9e+06", "999999.0", "0.5", "0.0003", "3e-05", "555557.5"],
            id="FromJsonSingleFloatTensorSixDigitPrecision",
        ),
        pytest.param(
            [[math.nan, math.inf], [3, -math.inf]],
            ["NaN", "Infinity", "3.0", "-Infinity"],
            id="FromJsonSingleFloatTensorNonFinite",
        ),
    ],
)
def test_O5_floats_as_they_are_written(values, written):
    answer = format_predict({"float_tensor": np.float32(values)}, True).decode()
    assert answer.partition(":")[2].translate(str.maketrans("[],}", "    ")).split() == written


@pytest.mark.parametrize(
    ("outputs", "words"),
    [
        pytest.param({"tensor": np.complex64([1, 2])}, "tensor type: complex64", id="FromJsonSingleTensorErrors"),
        pytest.param({"tensor": np.int32(1)}, "no shape information", id="FromJsonSingleTensorErrors"),
        pytest.param(
            {"int_tensor": np.zeros([2, 3], np.int32), "str_tensor": texts([b"foo", b"bar", b"baz"])},
            "inconsistent batch size",
            id="FromJsonMultipleNamedTensorsErrors",
        ),
        pytest.param(
            {"int_tensor": np.zeros([0, 2], np.int32), "str_tensor": texts([b"foo", b"bar"])},
            "inconsistent batch size",
            id="FromJsonMultipleZeroBatchTensorsErrors",
        ),
    ],
)
def test_O3_O9_answers_that_cannot_be_written(outputs, words):
    with pytest.raises(ServingError) as error:
        format_predict(outputs, True)
    assert error.value.code == "INVALID_ARGUMENT" and words in error.value.message


def features(**kinds):
    """Features of lists by the kind of their values."""
    found = tf.train.Example()
    for name, values in kinds.items():
        kind = {bytes: "bytes_list", float: "float_list", int: "int64_list"}[type(values[0])]
        getattr(found.features.feature[name], kind).value.extend(values)
    return found


NO_CONTEXT = """{"examples": [{"names": ["foo", "bar"], "ratings": [8.0, 9.0], "age": 20},
    {"names": ["baz"], "ratings": 6.0}]}"""
WITH_CONTEXT = """{"signature_name": "custom_signture", "context": {"query": "pizza", "location": ["sfo"]},
    "examples": [{"names": ["foo", "bar"], "ratings": [8.0, 9.0, NaN, Infinity], "age": 20},
        {"names": ["baz", {"b64": "aGVsbG8="}], "ratings": 6.0, "intboolmix": [1, true, false]},
        {"names": "bar", "ratings": -Infinity}]}"""


@pytest.mark.parametrize(
    ("body", "signature", "expected"),
    [
        pytest.param(
            NO_CONTEXT,
            "",
            [
                features(names=[b"foo", b"bar"], ratings=[8.0, 9.0], age=[20]),
                features(names=[b"baz"], ratings=[6.0]),
            ],
            id="RequestNoContext",
        ),
        pytest.param(
            WITH_CONTEXT,
            "custom_signture",
            [
                features(**of_one, query=[b"pizza"], location=[b"sfo"])
                for of_one in (
                    {"names": [b"foo", b"bar"], "ratings": [8.0, 9.0, math.nan, math.inf], "age": [20]},
                    {"names": [b"baz", b"hello"], "ratings": [6.0], "intboolmix": [1, 1, 0]},
                    {"names": [b"bar"], "ratings": [-math.inf]},
                )
            ],
            id="RequestWithContextAndSignature",
        ),
    ],
)
def test_C1_C3_C4_examples(body, signature, expected):
    parsed = parse_body(body.encode())
    assert _signature_name(parsed) == signature
    found = [tf.train.Example.FromString(example) for example in parse_examples(parsed)]
    assert list(map(str, found)) == list(map(str, expected))  # as text, in which NaN equals NaN


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ('{"signature_name": ["hello"], "examples": [{"names": ["foo"]}]}', "'signature_name' key must be a string"),
        ('{"context": [{"names": ["foo", "bar"]}]}', "Example must be JSON object"),
        ('{"examples": {"names": ["foo", "bar"]}}', "list/array"),
        ('{"examples": [[{"names": ["foo", "bar"]}]]}', "Example must be JSON object"),
        ('{"examples": [{"names": [10, null]}]}', "names has element with unexpected JSON type: Null"),
        ('{"examples": [{"names": [10, 10.0]}]}', "feature: names expecting type: int64"),
        ('{"examples": [{"names": [10, {"test": 10}]}]}', "names has element with unexpected JSON type: Object"),
        ('{"examples": [{"names": [[10], 20]}]}', "names has element with unexpected JSON type: Array"),
        ('{"examples": [{"names": [20, 18446744073709551603]}]}', "Only int64_t is supported"),
    ],
)
def test_C2_C3_examples_that_are_refused(body, words):
    """JsonErrors."""
    with pytest.raises(ServingError) as error:
        parsed = parse_body(body.encode())
        _signature_name(parsed)
        parse_examples(parsed)
    assert error.value.code == "INVALID_ARGUMENT" and words in error.value.message


def test_C7_results():
    """JsonFromClassificationResult, JsonFromRegressionResult, JsonFromRegressionResultWithNonFinite."""
    labels, scores = texts([b"car", b"bike", b"bus"], [b"car", b"bike", b"bus"]), [[0.2, 0.7, 0.1], [0.7, 0.1, 0.2]]
    answer = json.loads(format_classify(labels, np.float32(scores)))
    rows = [[["car", 0.2], ["bike", 0.7], ["bus", 0.1]], [["car", 0.7], ["bike", 0.1], ["bus", 0.2]]]
    assert answer == {"results": rows}
    assert json.loads(format_regress(np.float32([0.2, 0.9, 1.0]))) == {"results": [0.2, 0.9, 1.0]}
    answer = format_regress(np.float32([0.2, math.inf, 1.0, -math.inf, math.nan])).decode()
    written = answer.partition(":")[2].translate(str.maketrans("[],}", "    ")).split()
    assert written == ["0.2", "Infinity", "1.0", "-Infinity", "NaN"]


@pytest.mark.parametrize("message", ['Bad key: "key"', "Bad key: 'key'"])
def test_R10_errors_as_they_are_written(message):
    """StatusError."""
    assert json.loads(error_body(message)) == {"error": message}
