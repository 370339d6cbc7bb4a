"""Predict in columnar format (P12-P14)."""


def columns(**changes):
    return {"signature_name": "mixed", "inputs": {"f": [1.5], "i": [2], "s": ["a"], "b": [True], **changes}}


def test_P12_every_input_is_needed_and_others_are_ignored(predict, error):
    assert predict(columns(extra=[{"x": 1}]))[0] == 200
    body = columns()
    del body["inputs"]["s"]
    assert error(body) == (400, "Missing named input: s in 'inputs' object.")


def test_P13_one_input_plain_or_by_name(predict, error):
    for inputs in ([1.0], {"x": [1.0]}):
        assert predict({"inputs": inputs}) == (200, {"outputs": [2.5]})
    assert predict({"signature_name": "any_shape", "inputs": 1.0}) == (200, {"outputs": 1.0})
    assert predict({"signature_name": "strings", "inputs": {"b64": "YQ=="}}) == (200, {"outputs": {"b64": "YQ=="}})
    expected = (
        "inputs is a plain value/list, but expecting an object as multiple input tensors required as per tensorinfo_map"
    )
    assert error({"signature_name": "mixed", "inputs": [1.0]}) == (400, expected)


def test_P14_inputs_of_different_length(predict):
    body = {"signature_name": "total", "inputs": {"x": [1.0, 2.0, 3.0], "z": [4.0]}}
    assert predict(body) == (200, {"outputs": [10.0]})
