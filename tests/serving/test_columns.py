"""The encoding of columns in a request, and the decoding of the answer."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.serving.client.columns import read_json, read_output, to_arrays
from ctrpipe.serving.predict_body import predict_body

NAN = float("nan")


def listed(array: np.ndarray) -> list:
    return [None if isinstance(value, float) and math.isnan(value) else value for value in array.tolist()]


@pytest.mark.parametrize(
    "values",
    [
        [1, None, 2.5],
        [1.0, NAN, 2.5],
        np.array([1.0, NAN, 2.5]),
        np.array([1, None, 2.5], object),
        pa.array([1.0, None, 2.5]),
        pa.array([1.0, None, 2.5], pa.float32()),
    ],
)
def test_numbers_are_float32_and_what_is_missing_is_nan(values):
    array = to_arrays({"n": values})["n"]
    assert array.dtype == np.float32 and listed(array) == [1.0, None, 2.5]


def test_arrow_integers_are_raw_numbers_and_numpy_ones_are_ids():
    arrays = to_arrays({"n": pa.array([1, None], pa.int64()), "ids": np.array([[1, 2]], np.int32)})
    assert arrays["n"].dtype == np.float32 and listed(arrays["n"]) == [1.0, None]
    assert arrays["ids"].dtype == np.int32 and arrays["ids"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "values",
    [
        ["é", None, ""],
        ["é".encode(), None, b""],
        np.array(["é", "", ""]),
        np.array(["é".encode(), None, b""], object),
        pa.array(["é", None, ""]),
        pa.array(["é", None, ""], pa.large_string()),
        pa.array(["é".encode(), None, b""], pa.binary()),
        pa.array(["é", None, ""]).dictionary_encode(),
        pa.array(["é".encode(), None, b""]).dictionary_encode(),
    ],
)
def test_texts_are_bytes_and_what_is_missing_is_empty(values):
    array = to_arrays({"c": values})["c"]
    assert array.dtype == object and array.tolist() == ["é".encode(), b"", b""]


def test_a_record_batch_and_a_table_are_their_columns():
    batch = pa.record_batch({"n": pa.array([1.5]), "c": pa.array(["a"])})
    for rows, count in ((batch, 1), (pa.Table.from_batches([batch, batch]), 2)):
        arrays = to_arrays(rows)
        assert {name: array.tolist() for name, array in arrays.items()} == {"n": count * [1.5], "c": count * [b"a"]}
    for nothing in (batch.slice(0, 0), {"c": np.array([], object)}, {"c": np.array([], "U1")}):
        array = to_arrays(nothing)["c"]
        assert array.shape == (0,) and array.dtype == object


@pytest.mark.parametrize(
    "values",
    [[None], [1.0, "x"], ["a", 1.0], ["\udcff"], [[1], [2, 3]], pa.nulls(2), [{}], np.array([1], "M8[s]")],
)
def test_a_column_of_something_else_is_one_line_with_its_name(values):
    with pytest.raises(InputError, match="^column 'I1': [^\n]+$"):
        to_arrays({"I1": values})


def test_missing_and_infinite_numbers_travel_as_tokens():
    arrays = {"n": np.array([0.1, NAN], np.float32), "i": np.array([NAN, np.inf, -np.inf], np.float32)}
    body = predict_body("s", arrays)
    assert b"[0.1,NaN]" in body and b"null" not in body
    parsed = json.loads(body)
    assert parsed["signature_name"] == "s" and str(parsed["inputs"]["i"]) == "[nan, inf, -inf]"


def test_a_body_holds_shapes_and_texts_as_they_are():
    ids = np.arange(12, dtype=np.int32).reshape(2, 6)[:, ::2]  # no contiguous memory
    texts = np.array([b"null", 'é"\n'.encode(), b"", b"\xff\x00"], object)
    parsed = json.loads(predict_body("s", {"ids": ids, "c": texts, "none": np.zeros((0,), np.float32)}))
    assert parsed["inputs"]["ids"] == [[0, 2, 4], [6, 8, 10]] and parsed["inputs"]["none"] == []
    assert parsed["inputs"]["c"] == ["null", 'é"\n', "", {"b64": "/wA="}]


def test_an_answer_may_hold_tokens_and_bytes():
    answer = read_json(b'{"p": [0.5, NaN], "n": [1, 2], "s": ["\xc3\xa9", {"b64": "/w=="}]}')
    arrays = {name: read_output(values) for name, values in answer.items()}
    assert arrays["p"].dtype == np.float32 and listed(arrays["p"]) == [0.5, None]
    assert arrays["n"].tolist() == [1, 2] and arrays["s"].tolist() == ["é".encode(), b"\xff"]
    for wrong in ([None], [[1], [2, 3]], [{"x": "y"}], [{"b64": "!"}]):
        with pytest.raises(ValueError):
            read_output(wrong)
