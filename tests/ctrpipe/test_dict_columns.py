"""Columns of a dict given to `predict` have the texts that the same columns have in a DataFrame."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.data import table_of
from ctrpipe.model import Model, _arrow, _columns, _text
from ctrpipe.transforms.log.own_values import OwnValues
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import as_binary

TENTHS = [0.4, 0.2, None]


def texts(columns) -> list:
    return as_binary(_arrow(columns["c"], "c"), "c", "the rows").to_pylist()


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(TENTHS, dtype="float32", name="other"),
        pd.Series(TENTHS, dtype="Float32", index=pd.Index([7, 8, 9], name="user")),
        pl.Series("other", TENTHS, pl.Float32),
        np.array(TENTHS, np.float32),
        [np.float32(0.4), np.float32(0.2), None],
    ],
)
def test_a_float_of_32_bits_has_its_own_shortest_text(values):
    assert texts(_columns({"c": values})) == [b"0.4", b"0.2", None]


def test_half_floats_are_read_as_in_a_dataframe():
    half = np.array([0.3, 2], np.float16)
    in_a_frame = as_binary(table_of(pd.DataFrame({"c": half}))["c"].combine_chunks(), "c", "the frame").to_pylist()
    assert texts({"c": half}) == texts({"c": list(half)}) == in_a_frame


def test_ids_of_unsigned_64_bits_are_their_digits():
    assert texts(_columns([{"c": 2**64 - 1}, {"c": None}, {"c": 7}])) == [b"18446744073709551615", None, b"7"]


def test_a_float_among_texts_has_its_own_shortest_text():
    assert _text(np.float32(0.4), "c", 0) == b"0.4"


def test_a_row_of_a_dataframe_is_refused_with_what_to_give():
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    with pytest.raises(InputError, match=r"such as frame.iloc\[\[0\]\]$"):
        _columns(frame.iloc[0])
    assert _columns(frame.iloc[[0]]).num_rows == 1


@pytest.fixture
def of_dollars(monkeypatch) -> Model:
    """A model that reads a column of numbers as `$1,234.50`, and one of categories."""
    feature = {"kind": "numeric", "columns": ["n"], "written": {"prefix": "$", "thousands": ","}}
    features = [feature, {"kind": "categorical", "columns": ["c"]}]
    spec = LogSpec.model_validate({"data": {"format": "jsonl", "labels": {"ctr": "y"}}, "features": features})
    monkeypatch.setattr(Model, "_log_spec", spec)
    monkeypatch.setattr(Model, "_own", OwnValues(spec, {}))
    monkeypatch.setattr(Model, "_texts", lambda self: {"n": False, "c": True})
    return object.__new__(Model)


def test_numbers_of_the_logs_form_are_read_in_dicts_and_dataframes(of_dollars):
    columns = {"n": ["$1,234.50", None, "NA", "($2)"], "c": ["a", "b", "c", "d"]}
    expected = [1234.5, None, None, -2.0]
    assert of_dollars._texts_of_others(columns)["n"].to_pylist() == expected
    assert of_dollars._as_in_a_log(table_of(pd.DataFrame(columns)), "the frame")["n"].to_pylist() == expected
    assert of_dollars._texts_of_others({"n": [1.5, 2.0], "c": ["a", "b"]}) == {}
    with pytest.raises(InputError, match=r"row 1: n: '1,23' is not a number written as \$1,234.5"):
        of_dollars._texts_of_others({"n": ["$1", "1,23"], "c": ["a", "b"]})


def test_lists_in_brackets_are_read_in_dicts_and_dataframes_as_in_the_log(monkeypatch):
    feature = {"kind": "multivalent", "columns": ["tags"], "max_length": 3, "brackets": True}
    spec = LogSpec.model_validate({"data": {"format": "jsonl", "labels": {"ctr": "y"}}, "features": [feature]})
    monkeypatch.setattr(Model, "_log_spec", spec)
    monkeypatch.setattr(Model, "_own", OwnValues(spec, {}))
    monkeypatch.setattr(Model, "_texts", lambda self: {"tags": True})
    model, columns = object.__new__(Model), {"tags": ["['a', 'b']", "a|b", None, "[]"]}
    expected = [b"a|b", b"a|b", None, None]
    assert model._texts_of_others(columns)["tags"].to_pylist() == expected
    assert model._as_in_a_log(table_of(pd.DataFrame(columns)), "the frame")["tags"].to_pylist() == expected
    with pytest.raises(InputError, match="row 0: tags: '..a'' begins with a bracket and is no list"):
        model._texts_of_others({"tags": ["['a'"]})
