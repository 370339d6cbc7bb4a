"""The nearest known name, for messages about mistyped ones."""

import pytest

from ctrpipe.common.near import did_you_mean, nearest_name

COLUMNS = ["price", "Product_ID", "user_id", "I1", "I10", "title"]


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("prize", "price"),
        ("PRICE", "price"),
        ("product_id", "Product_ID"),
        ("user-id", "user_id"),
        ("i10", "I10"),
        ("titel", "title"),
        ("weather", None),
        ("", None),
    ],
)
def test_a_mistyped_name_finds_the_one_that_is_meant(name, near):
    assert nearest_name(name, COLUMNS) == near
    assert did_you_mean(name, iter(COLUMNS)) == (f"; did you mean {near}?" if near else "")


def test_names_that_differ_in_case_alone_are_told_apart_by_the_first():
    assert nearest_name("a", ["A", "a"]) == "A" and nearest_name("x", []) is None
