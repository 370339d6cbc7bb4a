"""Bodies as RapidJSON reads them (J1-J9)."""

import json
import math

import httpx
import pytest

from tests.contract import servers
from tests.contract.conftest import MODEL

MORE_THAN_A_STACK = 100_000


def test_J1_an_empty_body(error):
    assert error("") == (400, "JSON Parse error: The document is empty")
    assert error(" \n ") == (400, "JSON Parse error: The document is empty. at offset: 3")
    assert error(" ]") == (400, "JSON Parse error: The document is empty. at offset: 1")


@pytest.mark.parametrize(
    ("body", "reason", "offset"),
    [
        ('{"instances": [1.0,]}', "Invalid value.", 19),
        ('{"instances": nul}', "Invalid value.", 17),
        ('{"instances": [1 2]}', "Missing a comma or ']' after an array element.", 17),
        ('{"instances": [1}', "Missing a comma or ']' after an array element.", 16),
        ('{"instances": [01]}', "Missing a comma or ']' after an array element.", 16),
        ('{"instances": [1]', "Missing a comma or '}' after an object member.", 17),
        ('{"instances" [1]}', "Missing a colon after a name of object member.", 13),
        ("{1: 2}", "Missing a name for object member.", 1),
        ('{"a": 1,}', "Missing a name for object member.", 8),
        ('{"a": 1.}', "Miss fraction part in number.", 8),
        ('{"a": 1e}', "Miss exponent in number.", 8),
        ('{"a": 1e999}', "Number too big to be stored in double.", 6),
        ('{"a": 0e309}', "Number too big to be stored in double.", 6),
        ('{"a": [1, -0E+309]}', "Number too big to be stored in double.", 10),
        ('{"a": 0.00e400\n}', "Number too big to be stored in double.", 6),
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
        ('"\x01"', "Invalid escape character in string."),
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


DEEP = "[" * MORE_THAN_A_STACK + "]" * MORE_THAN_A_STACK


@pytest.mark.slow
def test_J6_the_parser_does_not_recurse(predict):
    assert predict(f'{{"x": {DEEP}, "instances": [1.0]}}') == (200, {"predictions": [2.5]})


@pytest.mark.slow
@servers.ours_alone("TensorFlow Serving ends with a segmentation fault: it looks for a tensor's shape recursively")
def test_J6_a_value_that_is_nested_deeply_is_refused(error):
    for body in (f'{{"instances": {DEEP}}}', f'{{"inputs": {DEEP}}}', f'{{"inputs": {{"x": {DEEP}}}}}'):
        assert error(body)[0] == 400


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
        '{"inputs": [1.0], "inputs"\n: [2.0]}',
        '{"inputs": [1.0], "inputs"  : [2.0]}',
        '{"inputs": {"x": [1.0], "x": [2.0]}}',
        '{"inputs": {"x": [1.0], "x": [NaN]}}',
        '{"signature_name": "half_plus_two", "signature_name": "nope", "inputs": [1.0]}',
        '{"inputs": [1.0], "other": [{"a:b": ":"}, "c\\":"], "inputs": [2.0]}',
    ],
)
def test_J13_of_a_member_that_is_there_twice_the_first_is_taken(predict, body):
    assert predict(body) == (200, {"outputs": [2.5]})


def test_J9_values_in_errors_are_pretty_printed_and_cut(error):
    assert error("[1, 2.5]") == (400, "JSON Value: [1, 2.5] Is not object")
    expected = 'JSON Value: [{\n        "a": null\n    }] Is not object'
    assert error('[{"a": null}]') == (400, expected)
    numbers = json.dumps(list(range(1000)))
    shown = numbers[: numbers.index(",", 256 - 1)]  # the number that passes 256 bytes is the last one
    assert error(numbers) == (400, f"JSON Value: {shown} Is not object")
    text = "x" * 10_000  # what has begun is not cut
    assert error(json.dumps([text, 1])) == (400, f'JSON Value: ["{text}" Is not object')


def test_J9_J12_numbers_in_errors_are_those_that_are_read(error):
    """The model has inputs of float64: 17976931348623157 times 1e292 is rounded up, beyond the highest double."""
    columns = {"signature_name": "mixed", "inputs": {"f": [1.0], "i": [0], "s": [""], "b": [True]}}
    body = json.dumps(columns).replace("[0]", "[1797693134862315700000e287]")
    assert error(body) == (400, "JSON Value:  Type: Number is not of expected type: int32")
    status, message = error('{"signature_name": 1, "y": 888.08e-302}')
    assert status == 400 and '"y": 8.880800000000001e-300\n' in message
    status, message = error('{"example": 888.08e-302}', ":classify")
    assert status == 400 and '"example": 8.8' in message  # TF Serving: 8.880800000000001e-300


def test_J11_bytes_that_are_no_utf8_are_kept(predict):
    body = b'{"signature_name": "strings", "inputs": ["\xff\xc3\xa9"]}'
    assert predict(body) == (200, {"outputs": [{"b64": "/8Op"}]})


def test_J11_escapes_are_the_characters_they_stand_for(predict):
    body = r'{"signature_name": "text", "inputs": ["\u00e9\n\t\"\\\/\ud83d\ude00\u0000"]}'
    assert predict(body) == (200, {"outputs": ['é\n\t"\\/😀\x00']})


def test_J11_the_second_half_of_a_surrogate_pair_alone_is_taken(predict):
    body = r'{"signature_name": "strings", "inputs": ["\udc00"]}'
    assert predict(body) == (200, {"outputs": [{"b64": "7bCA"}]})  # ed b0 80


def test_J10_a_byte_order_mark_is_skipped_and_counted(predict, error):
    assert predict(b'\xef\xbb\xbf{"inputs": [1.0]}') == (200, {"outputs": [2.5]})
    expected = (400, "JSON Parse error: Missing a comma or ']' after an array element. at offset: 18")
    assert error(b'\xef\xbb\xbf{"inputs": [1.0}') == expected


@pytest.mark.parametrize(
    ("number", "value"),
    [
        ("1.7976931348623159e308", math.inf),
        ("-1.7976931348623159e308", -math.inf),
        ("1e308", 1e308),
        ("888.08e-302", 8.880800000000001e-300),  # 88808 / 1e304, which is no double
        ("9007199254740993.0", 9007199254740992.0),
        ("-0", 0.0),
    ],
)
def test_J12_numbers_are_read_without_full_precision(predict, number, value):
    zeros = {name: [0] for name in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64", "float32")}
    body = json.dumps({"signature_name": "numbers", "inputs": zeros | {"float64": ["x"]}}).replace('"x"', number)
    assert predict(body)[1]["outputs"]["float64"] == [value]


def test_J13_of_an_input_that_a_row_has_twice_both_values_count(predict):
    assert predict('{"instances": [{"x": 1.0, "x": 2.0}, {"x": 3.0}]}') == (200, {"predictions": [2.5, 3.0]})


def test_J13_of_a_feature_that_is_there_twice_the_last_is_taken(predict):
    body = '{"signature_name": "regress", "examples": [{"x": 1.5, "x": 2.5}]}'
    assert predict(body, ":regress") == (200, {"results": [2.5]})


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (b'{"inputs": "\xff\xfe"}', b'JSON Value: \\"\xff\xfe\\" Type: String is not of expected type: float'),
        (
            b'{"signature_name": "regress", "inputs": [{"b64": "////"}]}',
            b"Could not parse example input, value: '\xff\xff\xff'",
        ),
    ],
)
def test_J9_bytes_that_are_no_utf8_are_in_an_error_as_they_are(base_url, sent, found):
    """Be they shown by the server or by TensorFlow."""
    answer = httpx.post(f"{base_url}{MODEL}:predict", content=sent, trust_env=False)
    assert answer.status_code == 400 and b'"error": "' + found in answer.content
