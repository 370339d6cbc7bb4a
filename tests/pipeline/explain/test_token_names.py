"""The names of the tokens of a text whose tokens are values of the log."""

import types

import numpy as np
import pyarrow as pa

from ctrpipe.pipeline.explain.rows import token_names

TEXT = types.SimpleNamespace(padding_id=0, classify_id=2, separator_id=3)
FEATURE = types.SimpleNamespace(columns=["query", "title"], separator=",", tokens="vocabulary")


def test_the_tokens_of_each_column_are_its_pieces_of_the_log_and_unknown_beyond_them():
    row = pa.table({"query": [b"red,,shoes"], "title": [b"low heels,on sale"]})
    tokens = np.array([2, 7, 8, 3, 9, 10, 11, 3, 12, 0, 0])
    expected = ["[CLS]", "red", "shoes", "[SEP]", "low heels", "on sale", "token 11", "[SEP]", "token 12"]
    assert token_names(row, tokens, FEATURE, TEXT) == expected


def test_a_column_without_a_value_has_no_tokens():
    row = pa.table({"query": pa.array([None], pa.binary()), "title": [b"sale"]})
    assert token_names(row, np.array([2, 3, 9, 3, 0]), FEATURE, TEXT) == ["[CLS]", "[SEP]", "sale", "[SEP]"]
