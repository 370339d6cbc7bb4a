"""Classify and regress (C1-C7)."""

import numpy as np
import pytest


def body(*examples, **more):
    return {"examples": list(examples), **more}


def test_C1_examples_and_their_signature(predict):
    answer = predict(body({"x": 1.5}, {"x": 2.5}, signature_name="regress"), ":regress")
    assert answer == (200, {"results": [1.5, 2.5]})
    answer = predict(body({"x": 0.25, "s": "a"}, signature_name="classify"), ":classify")
    assert answer == (200, {"results": [[["a", 0.25], ["other", 0.75]]]})


def test_C1_P15_a_subnormal_number_is_zero(predict):
    answer = predict(body({"x": 1e-40}, {"x": -1e-310}, signature_name="classify_scores"), ":classify")
    assert answer == (200, {"results": [[["", 0.0]], [["", 0.0]]]})


@pytest.mark.parametrize("method", [":classify", ":regress"])
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "When method is classify, key 'examples' is expected and was not found"),
        ({"examples": {"x": 1.0}}, "Expecting 'examples' value to be an list/array"),
        ({"examples": []}, "'examples' value is an empty array"),
    ],
)
def test_C2_examples_is_a_filled_list(error, method, changes, reason):
    status, message = error({"signature_name": "regress", **changes}, method)
    assert status == 400 and message.startswith("JSON Value: {") and message.endswith(reason)


def test_C2_examples_are_objects(error):
    expected = (400, "Example must be JSON object but got JSON Number")
    assert error(body(1.0, signature_name="regress"), ":regress") == expected


def test_C3_the_kind_follows_the_json_type(predict, error):
    def classified(example):
        status, answer = predict(body(example, signature_name="classify_classes"), ":classify")
        return answer["results"][0][0][0]

    assert classified({"s": "é"}) == "é" and classified({"s": {"b64": "YQ=="}}) == "a"
    assert predict(body({"x": [1.5], "n": True}, signature_name="regress"), ":regress")[1] == {"results": [2.5]}
    # an integer is an int64_list, which the float feature cannot be
    status, message = error(body({"x": 1}, signature_name="regress"), ":regress")
    assert status == 400 and "Data types don't match" in message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1, 1.5], "Unexpected element type in feature: x expecting type: int64"),
        ([1.5, 1], "Unexpected element type in feature: x expecting type: float"),
        (["a", 1], "Unexpected element type in feature: x expecting type: bytes"),
        (None, "Feature: x has element with unexpected JSON type: Null"),
        ([[1]], "Feature: x has element with unexpected JSON type: Array"),
        ({"y": 1}, "Feature: x has element with unexpected JSON type: Object"),
        (2**63, "Feature: x has uint64_t element. Only int64_t is supported."),
        ({"b64": "!"}, "Unable to base64 decode"),
    ],
)
def test_C3_values_that_are_no_feature(error, value, message):
    assert error(body({"x": value}, signature_name="regress"), ":regress") == (400, message)


def test_C3_a_name_that_is_no_utf8_is_a_feature_of_its_own(predict):
    sent = b'{"signature_name": "regress", "examples": [{"x": 1.5, "\xff": 2.5, "n\\u0000z": 2}, {}]}'
    assert predict(sent, ":regress") == (200, {"results": [3.5, 0.0]})


@pytest.mark.parametrize(
    ("sent", "value", "scores"),
    [
        ({"x": []}, 0.0, (0.0, 1.0)),
        ({"x": [], "n": [2]}, 2.0, (0.0, 1.0)),
        ({"": [], "x": 0.25}, 0.25, (0.25, 0.75)),
        ({"n": [], "x": [], "s": []}, 0.0, (0.0, 1.0)),
    ],
)
def test_C3_an_empty_list_is_a_feature_without_a_value(predict, sent, value, scores):
    assert predict(body(sent, signature_name="regress"), ":regress") == (200, {"results": [value]})
    labelled = [["", scores[0]], ["other", scores[1]]]
    assert predict(body(sent, signature_name="classify"), ":classify") == (200, {"results": [labelled]})


def test_C4_an_empty_list_of_the_context_is_a_feature_without_a_value(predict):
    found = predict(body({"x": 1.5}, {}, context={"x": [], "n": 2}, signature_name="regress"), ":regress")
    assert found == (200, {"results": [3.5, 2.0]})
    # TensorFlow's parser reads past a feature without a value, so the context's remains.
    found = predict(body({"n": []}, context={"n": 2}, signature_name="regress"), ":regress")
    assert found == (200, {"results": [2.0]})


def test_C4_the_context_is_part_of_each_example(predict):
    found = predict(body({"x": 1.5}, {"n": 2}, {}, context={"x": 10.5}, signature_name="regress"), ":regress")
    assert found == (200, {"results": [1.5, 12.5, 10.5]})


@pytest.mark.parametrize(
    ("signature", "method", "message"),
    [
        ("no", ":regress", "No signature was found with the name: no"),
        ("no", ":classify", "No signature was found with the name: no"),
        ("mixed", ":regress", "Expected one input Tensor."),
        ("mixed", ":classify", "Expected one input Tensor."),
        ("regress_examples", ":regress", "No regression inputs found in SignatureDef: "),
        ("regress_examples", ":classify", "No classification inputs found in SignatureDef: "),
        ("classify", ":regress", "Expected one output Tensor."),
        ("classify_scores", ":regress", "No regression outputs found in SignatureDef: "),
        ("regress", ":classify", "Expected classification signature outputs to contain at least one of"),
        (
            "regress_wide",
            ":regress",
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got [1,2]",
        ),
    ],
)
def test_C5_signatures_that_do_not_fit(error, signature, method, message):
    status, found = error(body({"x": 0.5}, signature_name=signature), method)
    assert status == 400 and found.startswith(message)


def test_C5_the_default_signature(error):
    status, message = error(body({"x": 0.5}), ":regress")
    assert status == 400 and message.startswith("No regression inputs found in SignatureDef: ")


def test_C6_the_method_of_the_signature_is_not_checked(predict, call):
    signatures = call("GET", "/v1/models/m/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    assert signatures["regress"]["method_name"] == "tensorflow/serving/predict"
    assert predict(body({"x": 0.5}, signature_name="regress"), ":regress")[0] == 200


def test_C7_results(predict):
    examples = [{"x": float(number) / 8} for number in range(20)]
    flat = predict(body(*examples, signature_name="regress_column"), ":regress")[1]["results"]
    np.testing.assert_array_equal(flat, np.arange(20) / 8)
    scores = predict(body({"x": 0.5}, {"x": 2.0}, signature_name="classify_scores"), ":classify")
    assert scores == (200, {"results": [[["", 0.5]], [["", 2.0]]]})
    classes = predict(body({"s": "a"}, signature_name="classify_classes"), ":classify")
    assert classes == (200, {"results": [[["a", 0.0]]]})


def test_the_body_is_read_before_the_model_is_looked_up(call):
    assert call("POST", "/v1/models/other:regress", "{}")[0] == 400
    assert call("POST", "/v1/models/other:regress", '{"examples": [{}]}')[0] == 404
