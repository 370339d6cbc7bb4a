"""Predict in row format, and what both formats share (P1-P11, P21)."""

import pytest

from tests.contract.conftest import MODEL


def mixed(**changes):
    return {"f": 1.5, "i": 2, "s": "a", "b": True, **changes}


def test_P1_exactly_one_of_instances_and_inputs(error):
    status, message = error({"instances": [1.0], "inputs": [1.0]})
    expected = "Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist "
    assert status == 400 and message.startswith("JSON Value: {") and message.endswith(expected)
    assert error({}) == (400, "Missing 'inputs' or 'instances' key")


def test_P2_the_default_signature_and_an_unknown_one(predict, error):
    for named in ({}, {"signature_name": ""}, {"signature_name": "serving_default"}):
        assert predict({**named, "instances": [1.0]}) == (200, {"predictions": [2.5]})
    expected = 'Serving signature name: "no" not found in signature def'
    assert error({"signature_name": "no", "instances": [1.0]}) == (400, expected)


def test_P3_unknown_models_and_versions_after_the_body(call, error):
    body = '{"instances": [1.0]}'
    found = call("POST", "/v1/models/other:predict", body)
    assert found == (404, {"error": "Servable not found for request: Latest(other)"})
    assert error(body, "/versions/50:predict") == (404, "Servable not found for request: Specific(m, 50)")
    assert call("POST", "/v1/models/other:predict", "{")[0] == 400


def test_P4_an_unknown_label_is_a_bad_request(error):
    expected = (400, "Unrecognized servable version label: canary")
    assert error({"instances": [1.0]}, "/labels/canary:predict") == expected


@pytest.mark.parametrize(
    ("instances", "reason"),
    [
        (1.0, "Expecting 'instances' to be an list/array"),
        ({"x": 1.0}, "Expecting 'instances' to be an list/array"),
        ([], "No values in 'instances' array"),
    ],
)
def test_P5_instances_is_a_filled_list(error, instances, reason):
    status, message = error({"instances": instances})
    assert status == 400 and message.startswith("JSON Value: ") and message.endswith(reason)


def test_P6_one_input_by_name_or_plain_several_by_name(predict, error):
    assert predict({"instances": [{"x": 1.0}, {"x": 2.0}]}) == (200, {"predictions": [2.5, 3.0]})
    assert predict({"instances": [1.0, 2.0]}) == (200, {"predictions": [2.5, 3.0]})
    expected = (
        "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
        "tensorinfo_map"
    )
    assert error({"signature_name": "mixed", "instances": [1.0]}) == (400, expected)
    status, message = error({"signature_name": "mixed", "instances": [{"b64": "YQ=="}]})
    assert status == 400 and message


def test_P7_rows_of_both_kinds(error):
    expected = (400, "Expecting object but got list at item 1 of input list")
    assert error({"instances": [{"x": 1.0}, 2.0]}) == expected
    expected = (400, "Expecting value/list but got object at item 1 of input list")
    assert error({"instances": [1.0, {"x": 2.0}]}) == expected


def test_P8_an_unknown_key(error):
    expected = (
        "Failed to process element: 1 key: z of 'instances' list. "
        "Error: INVALID_ARGUMENT: JSON object: does not have named input: z"
    )
    assert error({"instances": [{"x": 1.0}, {"z": 1.0}]}) == (400, expected)


def test_P8_an_error_in_a_value_names_row_and_key(error):
    rows = [mixed(), mixed(i=1.5)]
    status, message = error({"signature_name": "mixed", "instances": rows})
    assert status == 400
    assert message == (
        "Failed to process element: 1 key: i of 'instances' list. Error: INVALID_ARGUMENT: "
        "JSON Value: 1.5 Type: Number is not of expected type: int32"
    )


def test_P9_rows_need_all_inputs(error):
    row = {"f": 1.0}
    status, message = error({"signature_name": "mixed", "instances": [row]})
    assert status == 400
    assert message.startswith("Failed to process element: 0 of 'instances' list. JSON object: {\n")
    assert message.endswith("keys must be equal to: b,f,i,s")
    status, message = error({"signature_name": "with_default", "instances": [{"x": 1.0}]})
    assert status == 400 and message.endswith("keys must be equal to: scale,x")


def test_P10_ragged_rows(error):
    start = "Failed to process element: 1 of 'instances' list. Error: INVALID_ARGUMENT: "
    body = {"signature_name": "any_shape", "instances": [[1.0, 2.0], [1.0]]}
    assert error(body) == (400, f"{start}Expecting tensor size: 2 but got: 1")
    body["instances"] = [[1.0, 2.0], [[1.0, 2.0]]]
    assert error(body) == (400, f"{start}Expecting shape [2] but got: [1,2]")


def test_P11_the_batch_is_the_first_dimension(predict, error):
    def shaped(*rows):
        return predict({"signature_name": "any_shape", "instances": list(rows)})[1]["predictions"]

    assert shaped(1.0, 2.0) == [1.0, 2.0]
    assert shaped([1.0], [2.0]) == [[1.0], [2.0]]
    assert shaped([[1.0, 2.0]], [[3.0, 4.0]]) == [[[1.0, 2.0]], [[3.0, 4.0]]]
    assert shaped([], []) == [[], []]
    assert error({"signature_name": "matrix", "instances": [1.0, 2.0]})[0] == 400


def test_P21_shapes_are_checked_by_the_run(error):
    status, message = error({"signature_name": "matrix", "inputs": [1.0]})
    assert status == 400 and message
    status, message = error({"signature_name": "failing", "inputs": [-1.0]})
    assert status == 400 and "not positive" in message


def test_rows_of_many_inputs_keep_their_order(predict):
    rows = [mixed(f=float(number), i=-number, s=str(number), b=bool(number % 2)) for number in range(5)]
    status, answer = predict({"signature_name": "mixed", "instances": rows})
    assert status == 200
    expected = [
        {"sum": 0.0, "text": str(number), "flag": bool(number % 2), "s_bytes": row["s_bytes"]}
        for number, row in enumerate(answer["predictions"])
    ]
    assert answer["predictions"] == expected


def test_the_model_of_the_url_is_the_one_asked(call):
    assert call("POST", f"{MODEL}x:predict", '{"instances": [1.0]}')[0] == 404


@pytest.mark.slow
def test_100_000_rows_in_one_request(predict):
    status, answer = predict({"instances": list(range(100_000))})
    assert status == 200 and answer["predictions"] == [row / 2 + 2 for row in range(100_000)]
    rows = [mixed(i=row) for row in range(100_000)]
    status, answer = predict({"signature_name": "mixed", "instances": rows})
    assert status == 200 and [row["sum"] for row in answer["predictions"]] == [1.5 + row for row in range(100_000)]
