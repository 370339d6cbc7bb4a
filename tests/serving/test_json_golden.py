"""Parsed and formatted JSON, compared with recorded results of TF Serving's own code.

The files in golden/ were written by util/json_tensor.cc of TF Serving (commit 9d981c5c) with RapidJSON 1.1.0, compiled:
bodies with the tensors, examples or errors that it reads, tensors with the bytes that it prints. Text stands there as
Latin-1, one character a byte, and floats as hexadecimal. Subnormal numbers are zeros there, as in the threads of the
server, and not as where json_tensor.cc is called alone (P15).
"""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from ctrpipe.serving.server.errors import ServingError
from ctrpipe.serving.server.json_body import has_booleans, parse_body
from ctrpipe.serving.server.json_examples import parse_examples
from ctrpipe.serving.server.json_response import decimals, format_predict
from ctrpipe.serving.server.tensors import Kinds, parse_predict

GOLDEN = pathlib.Path(__file__).parent / "golden"
SIGNATURES = {
    "serving_default": {"x": tf.float32},
    "d": {"x": tf.float64},
    "i8": {"x": tf.int8},
    "i16": {"x": tf.int16},
    "i32": {"x": tf.int32},
    "i64": {"x": tf.int64},
    "u8": {"x": tf.uint8},
    "u16": {"x": tf.uint16},
    "u32": {"x": tf.uint32},
    "u64": {"x": tf.uint64},
    "b": {"x": tf.bool},
    "s": {"x": tf.string},
    "h": {"x": tf.float16},
    "m": {"a": tf.float32, "b": tf.int32, "c": tf.string},
    "n": {"a": tf.float64, "b": tf.bool},
}


def lines(name):
    return [json.loads(line) for line in (GOLDEN / name).read_text().splitlines()]


REQUESTS = lines("json_requests.jsonl")


def array(tensor):
    dtype, shape, values = tensor["dtype"], tensor["shape"], tensor["values"]
    if dtype == "string":
        found = np.empty(len(values), object)
        found[:] = [value.encode("latin-1") for value in values]
    elif dtype.startswith("float"):
        found = np.array([float.fromhex(value) for value in values], dtype)
    else:
        found = np.array(values, dtype)
    return found.reshape(shape)


def read(case):
    """The parsed body: inputs by name and whether they are rows, or the signature and the examples."""
    body = case["body"].encode("latin-1")
    request = parse_body(body, reads_doubles=case["call"] != "classify")
    signature = request.get("signature_name", "")
    if case["call"] == "classify":
        return signature, [tf.train.Example.FromString(example) for example in parse_examples(request)]
    dtypes = SIGNATURES[signature or "serving_default"]
    return parse_predict(request, dtypes, Kinds(booleans=has_booleans(body)))


def of_this_code(case):
    """Whether the answer is json_tensor.cc's alone: not the handler's, which knows the signatures."""
    error = case.get("error", "")
    return not ("'signature_name' key" in error or error.startswith(("Serving signature", "Failed to get input map")))


@pytest.mark.parametrize("case", [case for case in REQUESTS if "error" in case and of_this_code(case)])
def test_a_body_is_refused_with_the_same_text(case):
    with pytest.raises(ServingError) as found:
        read(case)
    assert found.value.code == case["code"]
    assert found.value.message.encode("utf-8", "surrogateescape") == case["error"].encode("latin-1")


@pytest.mark.parametrize("case", [case for case in REQUESTS if "inputs" in case])
def test_a_predict_request_has_the_same_tensors(case):
    inputs, by_row = read(case)
    assert by_row == case["by_row"] and set(inputs) == set(case["inputs"])
    for name, tensor in case["inputs"].items():
        expected = array(tensor)
        assert inputs[name].dtype == expected.dtype and inputs[name].shape == expected.shape
        assert inputs[name].tobytes() == expected.tobytes() or expected.dtype == object or np.isnan(expected).any()
        np.testing.assert_array_equal(inputs[name], expected)


@pytest.mark.parametrize("case", [case for case in REQUESTS if "examples" in case])
def test_a_classify_request_has_the_same_examples(case):
    signature, examples = read(case)
    assert signature.encode("utf-8", "surrogateescape") == case["signature"].encode()
    found = [{name: feature(value) for name, value in example.features.feature.items()} for example in examples]
    assert found == case["examples"]


def feature(value):
    kind = value.WhichOneof("kind")
    if kind is None:
        return None
    texts = {"bytes_list": lambda item: item.decode("latin-1"), "float_list": float.hex, "int64_list": int}
    return [kind, [texts[kind](item) for item in getattr(value, kind).value]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("together", [True, False])
def test_a_float_has_the_same_digits(dtype, together):
    cases = json.loads((GOLDEN / "json_floats.json").read_text())[dtype]
    values = np.array([float.fromhex(value) for value, _ in cases], dtype)
    expected = [text.encode() for _, text in cases]
    found = decimals(values) if together else [decimals(values[at : at + 1])[0] for at in range(len(values))]
    assert found == expected


@pytest.mark.parametrize("case", lines("json_answers.jsonl"))
def test_an_answer_has_the_same_bytes(case):
    outputs = {name: array(tensor) for name, tensor in case["outputs"].items()}
    if "error" in case:
        with pytest.raises(ServingError) as found:
            format_predict(outputs, case["by_row"])
        assert (found.value.code, found.value.message) == ("INVALID_ARGUMENT", case["error"])
    else:
        assert format_predict(outputs, case["by_row"]) == case["text"].encode("latin-1")
