"""TF Serving's REST behaviour; each test is named after its item in the contract."""

import gzip
import json
import math

import numpy as np
import pytest

MODEL = "/v1/models/m"


def predict(call, body, suffix=":predict"):
    return call("POST", MODEL + suffix, body if isinstance(body, str | bytes) else json.dumps(body))


def error(call, body, suffix=":predict"):
    status, answer = predict(call, body, suffix)
    assert set(answer) == {"error"}
    return status, answer["error"]


def mixed(**changes):
    return {"signature_name": "mixed", "inputs": {"f": [1.5], "i": [2], "s": ["a"], "b": [True], **changes}}


def test_R1_predict_by_name_and_version_in_any_case(call):
    for suffix in (":predict", "/versions/123:predict", ":PREDICT"):
        assert predict(call, {"instances": [1.0, 5.0]}, suffix) == (200, {"predictions": [2.5, 4.5]})


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/models/m:predict?x=1"),  # R6
        ("PUT", "/v1/models/m:predict"),  # R7
        ("POST", "/v1/models/m/versions/abc:predict"),  # R13
        ("GET", "/v1/models/m:predict"),
        ("POST", "/v1/models/m/metadata"),
        ("POST", "/v1/models"),
        ("GET", "/v1/other"),
    ],
)
def test_R4_R6_R7_R13_malformed_requests(call, method, path):
    assert call(method, path, "{}") == (400, {"error": f"Malformed request: {method} {path}"})


def test_R5_other_paths_are_not_json(call):
    status, answer = call("GET", "/")
    assert status == 404 and isinstance(answer, str) and "Not Found" in answer


def test_R8_preflight(call):
    assert call("OPTIONS", MODEL, Origin="http://a.b") == (200, "")
    assert call("OPTIONS", MODEL) == (400, "")


def test_R11_gzip_bodies(call):
    body = gzip.compress(b'{"instances": [2.0]}')
    path = MODEL + ":predict"
    assert call("POST", path, body, **{"Content-Encoding": "gzip"}) == (200, {"predictions": [3.0]})


def test_R12_versions_over_int64_have_an_empty_body(call):
    assert predict(call, {"instances": [1.0]}, f"/versions/{2**63}:predict") == (400, "")


def test_R14_no_list_of_models(call):
    assert call("GET", "/v1/models") == (400, {"error": "Missing model name in request."})


def test_J1_J2_J3_broken_bodies(call):
    assert error(call, "") == (400, "JSON Parse error: The document is empty")
    assert error(call, '{"instances": [1.0,]}') == (400, "JSON Parse error: Invalid value. at offset: 19")
    status, message = error(call, "[1]")
    assert status == 400 and message.endswith("Is not object")


def test_J4_J5_nan_infinity_and_trailing_bytes(call):
    status, answer = predict(call, '{"inputs": [NaN, Infinity, -Inf, 1]} trailing')
    nan, high, low, one = answer["outputs"]
    assert status == 200 and math.isnan(nan) and (high, low, one) == (math.inf, -math.inf, 2.5)


def test_J6_deep_nesting_is_an_answer(call):
    status, _ = predict(call, '{"x": ' + "[" * 100_000 + "]" * 100_000 + ', "instances": [1.0]}')
    assert status == 200


def test_J7_J8_signature_name_must_be_a_string_and_other_keys_are_ignored(call):
    status, message = error(call, {"signature_name": 1, "instances": [1.0]})
    assert status == 400 and "'signature_name' key must be a string value" in message
    assert predict(call, {"other": 1, "instances": [1.0]})[0] == 200


def test_P1_exactly_one_of_instances_and_inputs(call):
    both, neither = error(call, {"instances": [1.0], "inputs": [1.0]}), error(call, {})
    assert "only one of 'inputs' or 'instances'" in both[1] and both[0] == 400
    assert neither == (400, "Missing 'inputs' or 'instances' key")


def test_P2_unknown_signature(call):
    expected = 'Serving signature name: "no" not found in signature def'
    assert error(call, {"signature_name": "no", "instances": [1.0]}) == (400, expected)


def test_P3_unknown_model_and_version_after_the_body(call):
    body = '{"instances": [1.0]}'
    found = call("POST", "/v1/models/other:predict", body)
    assert found == (404, {"error": "Servable not found for request: Latest(other)"})
    assert error(call, body, "/versions/50:predict")[1] == "Servable not found for request: Specific(m, 50)"
    assert call("POST", "/v1/models/other:predict", "{")[0] == 400


def test_P4_unknown_label(call):
    found = error(call, {"instances": [1.0]}, "/labels/canary:predict")
    assert found == (400, "Unrecognized servable version label: canary")


def test_P5_instances_must_be_a_filled_list(call):
    assert "Expecting 'instances' to be an list/array" in error(call, {"instances": 1.0})[1]
    assert "No values in 'instances' array" in error(call, {"instances": []})[1]


def test_P6_rows_by_name_or_plain(call):
    assert predict(call, {"instances": [{"x": 1.0}, {"x": 2.0}]}) == (200, {"predictions": [2.5, 3.0]})
    message = error(call, {"signature_name": "mixed", "instances": [1.0]})[1]
    assert "instances is a plain list, but expecting list of objects" in message


def test_P7_mixed_rows(call):
    assert "Expecting object but got list at item 1" in error(call, {"instances": [{"x": 1.0}, 2.0]})[1]
    assert "Expecting value/list but got object at item 1" in error(call, {"instances": [1.0, {"x": 2.0}]})[1]


def test_P8_P9_unknown_and_missing_keys(call):
    assert "does not have named input: z" in error(call, {"instances": [{"z": 1.0}]})[1]
    message = error(call, {"signature_name": "mixed", "instances": [{"f": 1.0}]})[1]
    assert message.endswith("keys must be equal to: b,f,i,s")


def test_P10_ragged_rows(call):
    body = {"signature_name": "matrix", "instances": [[1.0, 2.0], [1.0]]}
    assert error(call, body) == (400, "Expecting tensor size: 2 but got: 1")


def test_P12_columns_need_every_input_and_ignore_extra_ones(call):
    assert predict(call, mixed(extra=[1]))[0] == 200
    body = mixed()
    del body["inputs"]["s"]
    assert error(call, body) == (400, "Missing named input: s in 'inputs' object.")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"i": [1.0]}, "JSON Value: 1.0 Type: Number is not of expected type: int32"),
        ({"i": [2**31]}, "is not of expected type: int32"),
        ({"b": [1]}, "is not of expected type: bool"),
        ({"s": [None]}, "Type: Null is not of expected type: string"),
        ({"f": ["1"]}, "Type: String is not of expected type: float"),
        ({"s": [{"b64": "!"}]}, "Unable to base64 decode"),
        ({"s": [{"x": "y"}]}, "not formatted correctly for base64 data"),
    ],
)
def test_P16_P17_P18_types_are_strict(call, changes, message):
    status, found = error(call, mixed(**changes))
    assert status == 400 and message in found


def test_P15_floats_take_integers(call):
    assert predict(call, {"instances": [2, 4.0]}) == (200, {"predictions": [3.0, 4.0]})


def test_P20_nesting(call):
    assert "unexpected size: 1 at level: 1 expected size: 2" in error(call, {"inputs": [[1.0, 2.0], [1.0]]})[1]


def test_P21_shapes_are_checked_by_the_run(call):
    assert error(call, {"signature_name": "matrix", "inputs": [1.0]})[0] == 400


def test_an_error_of_the_graph_is_its_status(call):
    status, message = error(call, {"signature_name": "failing", "inputs": [-1.0]})
    assert status == 400 and "not positive" in message


def test_O2_O6_several_outputs_and_bytes(call):
    status, answer = predict(call, mixed(s=["é"]))
    assert answer["outputs"] == {"flag": [True], "s_bytes": [{"b64": "w6k="}], "sum": [3.5], "text": ["é"]}
    rows = {"signature_name": "mixed", "instances": [{"f": 1.5, "i": 2, "s": "a", "b": False}]}
    expected = [{"flag": False, "s_bytes": {"b64": "YQ=="}, "sum": 3.5, "text": "a"}]
    assert predict(call, rows) == (200, {"predictions": expected})


def test_O3_rows_need_a_batch(call):
    assert "no shape information" in error(call, {"signature_name": "odd", "instances": [1.0]})[1]
    assert predict(call, {"signature_name": "odd", "inputs": [1.0]})[1] == {"outputs": {"scalar": 1.0, "y": [1.0]}}


def test_O4_shapes_are_kept(call):
    body = {"signature_name": "matrix", "instances": [[1.0, 2.0], [3.0, 4.0]]}
    assert predict(call, body) == (200, {"predictions": [[1.0], [3.0]]})


def test_O5_floats_are_the_shortest_that_read_back(call):
    scale = np.float32(10) ** np.arange(-10, 10).repeat(10)
    values = np.random.default_rng(0).normal(size=200).astype(np.float32) * scale
    status, answer = predict(call, {"inputs": values.astype(float).tolist()})
    assert status == 200
    expected = (values.astype(np.float32) / 2 + 2).astype(np.float32)
    np.testing.assert_array_equal(np.array(answer["outputs"], np.float32), expected)


def test_O7_no_rows(call):
    assert predict(call, {"inputs": []}) == (200, {"outputs": []})


def test_S1_S3_S4_status(call):
    version = {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
    for path in (MODEL, MODEL + "/versions/123", MODEL + "/labels/unknown"):
        assert call("GET", path) == (200, {"model_version_status": [version]})
    assert call("GET", "/v1/models/x") == (404, {"error": "Could not find any versions of model x"})
    assert call("GET", MODEL + "/versions/7") == (404, {"error": "Could not find version 7 of model m"})


def test_M1_M2_metadata(call):
    status, answer = call("GET", MODEL + "/metadata")
    assert status == 200 and answer["model_spec"] == {"name": "m", "signature_name": "", "version": "123"}
    signature = answer["metadata"]["signature_def"]["signature_def"]["mixed"]
    assert signature["method_name"] == "tensorflow/serving/predict"
    shape = {"dim": [{"size": "-1", "name": ""}], "unknown_rank": False}
    assert signature["inputs"]["f"]["dtype"] == "DT_FLOAT" and signature["inputs"]["f"]["tensor_shape"] == shape
    assert call("GET", "/v1/models/x/metadata")[0] == 404
