"""Bodies as RapidJSON reads them (J1-J9)."""

import json
import math

import pytest

MORE_THAN_A_STACK = 100_000


def test_J1_an_empty_body(error):
    assert error("") == (400, "JSON Parse error: The document is empty")
    assert error(" \n ") == (400, "JSON Parse error: The document is empty. at offset: 3")


@pytest.mark.parametrize(
    ("body", "reason", "offset"),
    [
        ('{"instances": [1.0,]}', "Invalid value.", 19),
        ('{"instances": nul}', "Invalid value.", 17),
        ('{"instances": [1 2]}', "Missing a comma or ] after an array element.", 17),
        ('{"instances": [1}', "Missing a comma or ] after an array element.", 16),
        ('{"instances": [01]}', "Missing a comma or ] after an array element.", 16),
        ('{"instances": [1]', "Missing a comma or } after an object member.", 17),
        ('{"instances" [1]}', "Missing a colon after a name of object member.", 13),
        ("{1: 2}", "Missing a name for object member.", 1),
        ('{"a": 1,}', "Missing a name for object member.", 8),
        ('{"a": 1.}', "Miss fraction part in number.", 8),
        ('{"a": 1e}', "Miss exponent in number.", 8),
        ('{"a": 1e999}', "Number too big to be stored in double.", 6),
        ('{"é": }', "Invalid value.", 7),  # offsets count bytes
    ],
)
def test_J2_errors_have_rapidjsons_text_and_offset(error, body, reason, offset):
    assert error(body.encode()) == (400, f"JSON Parse error: {reason} at offset: {offset}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('"a', "Missing a closing quotation mark in string."),
        (r'"\x"', "Invalid escape character in string."),
        (r'"\u12"', r"Incorrect hex digit after \u escape in string."),
        (r'"\ud800"', "The surrogate pair in string is invalid."),
        ('"\x01"', "Invalid encoding in string."),
    ],
)
def test_J2_errors_in_strings(error, text, reason):
    status, message = error(f'{{"a": {text}}}')
    assert status == 400 and message.startswith(f"JSON Parse error: {reason} at offset: ")


def test_J2_half_a_surrogate_pair_before_a_byte_that_is_no_utf_8(error):
    status, message = error(b'{"a": "\\ud800\x80"}')
    assert (status, message) == (
        400,
        "JSON Parse error: The surrogate pair in string is invalid. at offset: 7",
    )


@pytest.mark.parametrize("body", ["[1]", "1", '"a"', "null", "NaN"])
def test_J3_the_top_level_is_an_object(error, body):
    status, message = error(body)
    assert status == 400 and message.startswith("JSON Value: ") and message.endswith(" Is not object")


def test_J4_nan_and_infinity(predict):
    status, answer = predict('{"inputs": [NaN, Inf, Infinity, -Inf, -Infinity, 1]}')
    nan, *infinities, one = answer["outputs"]
    assert status == 200 and math.isnan(nan) and one == 2.5
    assert infinities == [math.inf, math.inf, -math.inf, -math.inf]


@pytest.mark.parametrize("rest", ["x", "}", " {", "\x00", ', "b": 1'])
def test_J5_what_follows_the_value_is_ignored(predict, rest):
    assert predict('{"inputs": [1.0]}' + rest) == (200, {"outputs": [2.5]})


def test_J6_nesting_has_no_limit(predict, error):
    deep = "[" * MORE_THAN_A_STACK + "]" * MORE_THAN_A_STACK
    assert predict(f'{{"x": {deep}, "instances": [1.0]}}') == (200, {"predictions": [2.5]})
    assert error(f'{{"instances": {deep}}}')[0] == 400


def test_J7_signature_name_is_a_string(error):
    for name in (1, None, ["half_plus_two"]):
        status, message = error({"signature_name": name, "instances": [1.0]})
        expected = "not formatted correctly. 'signature_name' key must be a string value."
        assert status == 400 and message.startswith("JSON Value: {") and message.endswith(expected)


def test_J8_other_keys_are_ignored(predict):
    assert predict({"other": [1, {"a": None}], "instances": [1.0]}) == (200, {"predictions": [2.5]})


@pytest.mark.parametrize(
    "body",
    [
        '{"inputs": [1.0], "inputs": [2.0]}',
        '{"inputs" : [1.0], "inputs": [2.0]}',
        '{"inputs": {"x": [1.0], "x": [2.0]}}',
        '{"inputs": {"x": [1.0], "x": [NaN]}}',
        '{"signature_name": "half_plus_two", "signature_name": "nope", "inputs": [1.0]}',
        '{"inputs": [1.0], "other": [{"a:b": ":"}, "c\\":"], "inputs": [2.0]}',
    ],
)
def test_of_a_member_that_is_there_twice_the_first_is_taken(predict, body):
    assert predict(body) == (200, {"outputs": [2.5]})


def test_J9_values_in_errors_are_pretty_printed_and_cut(error):
    value = {"a": [1], "é": "x" * 10_000}
    status, message = error({"instances": [value]})
    assert status == 400 and len(message) < 1000
    status, message = error(json.dumps([1]))
    assert (status, message) == (400, "JSON Value: [\n    1\n] Is not object")


def test_bytes_that_are_no_utf8_are_kept(predict):
    body = b'{"signature_name": "strings", "inputs": ["\xff\xc3\xa9"]}'
    assert predict(body) == (200, {"outputs": [{"b64": "/8Op"}]})


def test_escapes_are_the_characters_they_stand_for(predict):
    body = r'{"signature_name": "text", "inputs": ["\u00e9\n\t\"\\\/\ud83d\ude00\u0000"]}'
    assert predict(body) == (200, {"outputs": ['é\n\t"\\/😀\x00']})
