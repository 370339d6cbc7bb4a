"""The rows of yesterday's tables for today's values."""

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.transforms.features.learned import numbers_that_stay
from ctrpipe.transforms.features.source_rows import (
    LearnedValues,
    differences,
    rows_of_ids,
    rows_of_positions,
    rows_of_tokens,
)
from ctrpipe.transforms.features.table_rows import NONE, SourceRows
from ctrpipe.transforms.log.spec import LogSpec


def learned(features, fields, vocabularies=None, numbers=None, text=None) -> LearnedValues:
    columns = [name for feature in features for name in feature["columns"]]
    spec = LogSpec.model_validate(
        {"data": {"columns": ["click", *columns], "labels": {"ctr": "click"}}, "features": features}
    )
    words = {name: pa.array([value.encode() for value in values]) for name, values in (vocabularies or {}).items()}
    values = {name: np.array(value, float) for name, value in (numbers or {}).items()}
    return LearnedValues(spec, FeatureMap.from_sizes(fields, text=text), words, values)


def categorical(column: str, values: str, oov: int = 1, **feature) -> LearnedValues:
    """A column whose vocabulary is the letters of a text."""
    feature = {"kind": "categorical", "columns": [column], "oov_buckets": oov, **feature}
    return learned([feature], [(column, "categorical", len(values) + oov - 1)], {column: list(values)})


def test_a_known_value_has_its_former_row_and_a_new_one_that_of_the_unknown_value():
    rows = rows_of_ids(categorical("c", "dab"), categorical("c", "abc"))
    # 0 is padding, 1 and 2 the unknown and the missing value; a, b and c were 3, 4 and 5.
    assert rows.same.tolist() == [0, 1, 2, NONE, 3, 4]
    assert rows.unknown.tolist() == [0, 1, 1, 1, 1, 1]


def test_several_unknown_ids_are_themselves_where_there_are_as_many_and_the_first_one_where_there_are_not():
    today, same, other = categorical("c", "ab", oov=3), categorical("c", "xyza", oov=3), categorical("c", "b", oov=2)
    assert rows_of_ids(today, same).same.tolist() == [0, 1, 2, 6, NONE, 7, 8]
    assert rows_of_ids(today, other).same.tolist() == [0, 1, 2, NONE, 3, 1, 1]


def hashed(column: str, buckets: int) -> LearnedValues:
    feature = {"kind": "categorical", "columns": [column], "transform": "hash", "buckets": buckets}
    return learned([feature], [(column, "categorical", buckets)])


def test_buckets_of_a_hash_are_themselves_or_nothing():
    assert rows_of_ids(hashed("c", 3), hashed("c", 3)).same.tolist() == [0, 1, 2, 3, 4, 5]
    for former in (hashed("c", 4), categorical("c", "abc"), categorical("other", "abc")):
        rows = rows_of_ids(hashed("c", 3), former)
        assert rows.same.tolist() == rows.unknown.tolist() == [0, *[NONE] * 5]
    assert rows_of_ids(categorical("c", "abc"), hashed("c", 3)).same.tolist() == [0, *[NONE] * 5]


def shop_and_items(shops: str, items: str) -> LearnedValues:
    features = [
        {"kind": "categorical", "columns": ["shop", "item"]},
        {"kind": "sequence", "columns": ["items"], "shared_with": ["item"], "max_length": 3},
        {"kind": "time", "columns": ["at"]},
    ]
    fields = [("shop", "categorical", len(shops)), ("item", "categorical", len(items))]
    fields += [("items", "sequence", len(items), 3, "feature", "mean", "item", "items")]
    fields += [("at_hour", "time", 24), ("at_weekday", "time", 7), ("at_is_weekend", "time", 2)]
    return learned(features, fields, {"shop": list(shops), "item": list(items)})


def test_each_field_is_mapped_by_its_own_vocabulary_and_a_shared_one_once():
    rows = rows_of_ids(shop_and_items("pq", "bc"), shop_and_items("q", "abc"))
    # Today: shop 1..4, item 5..8, the time's fields from 9 on. Before: shop 1..3, item 4..8, the time's from 9 on.
    assert rows.same.tolist() == [0, 1, 2, NONE, 3, 4, 5, 7, 8, *range(9, 48)]
    assert rows.unknown[:9].tolist() == [0, 1, 1, 1, 1, 4, 4, 4, 4]


def numeric(transform: str, buckets: int, numbers: list[float]) -> LearnedValues:
    feature = {"kind": "numeric", "columns": ["x"], "transform": transform, "buckets": buckets}
    return learned([feature], [("x", "numeric", buckets)], numbers={"x": numbers})


def test_a_bucket_with_other_boundaries_begins_as_the_one_in_which_its_middle_lies():
    former = numeric("quantile_bucketize", 4, [10, 20, 30])
    today = numeric("quantile_bucketize", 4, [12, 26, 31])
    # Below 12: the bucket 10..20; 12..26 has the middle 19, 26..31 has 28.5, and 31 is where the last one begins.
    assert rows_of_ids(today, former).same.tolist() == [0, 1, 2, 4, 4, 5, 6]
    assert rows_of_ids(former, former).same.tolist() == [0, 1, 2, 3, 4, 5, 6]
    tied = numeric("quantile_bucketize", 4, [0, 0, 5])
    assert rows_of_ids(tied, tied).same.tolist() == [0, 1, 2, 3, 4, 5, 6]
    # 5 buckets of 0..8 begin at 0, 2, 4, 6 and 8; 3 buckets of 0..16 at 0, 8 and 16.
    rows = rows_of_ids(numeric("min_max", 3, [0, 16]), numeric("min_max", 5, [0, 8]))
    assert rows.same.tolist() == [0, 1, 2, 5, 7, 7]


def test_numbers_stay_only_where_the_transform_is_the_same():
    former = numeric("quantile_bucketize", 4, [10, 20, 30])
    kept = numbers_that_stay(numeric("quantile_bucketize", 4, [1, 2, 3]).spec, former.spec, former.numbers)
    np.testing.assert_array_equal(kept["x"], [10, 20, 30])
    for other in (numeric("quantile_bucketize", 5, []), numeric("min_max", 4, [0, 1])):
        assert numbers_that_stay(other.spec, former.spec, former.numbers) == {}


def test_positions_have_the_rows_of_their_fields_alone():
    def with_position(values: str, places: str) -> LearnedValues:
        features = [
            {"kind": "categorical", "columns": ["c"]},
            {"kind": "categorical", "columns": ["place"], "role": "position"},
        ]
        fields = [("c", "categorical", len(values)), ("place", "categorical", len(places), 1, "position")]
        return learned(features, fields, {"c": list(values), "place": list(places)})

    today, former = with_position("abc", "213"), with_position("a", "12")
    rows = rows_of_positions(today.feature_map, former.feature_map, rows_of_ids(today, former))
    assert rows.same.tolist() == [0, 1, 3, 2, NONE]
    assert rows.unknown.tolist() == [0, 0, 0, 0, 0]


def test_tokens_are_mapped_behind_the_special_ones():
    from ctrpipe.models.base.feature_map import Text

    def text(words: list[str]) -> LearnedValues:
        features = [{"kind": "text", "columns": ["t"], "length": 4, "tokens": "vocabulary", "separator": " "}]
        return learned(features, [("f", "categorical", 1)], {"t": words}, text=Text(4, 5 + len(words)))

    rows = rows_of_tokens(text(["new", "b", "a"]), text(["a", "b"]))
    assert rows is not None
    assert rows.same.tolist() == [0, 1, 2, 3, 4, NONE, 6, 5]
    assert set(rows.unknown) == {1}  # the token of an unknown word


@pytest.mark.parametrize("or_unknown", [True, False])
def test_rows_are_taken_exactly_and_new_ones_by_the_setting(or_unknown):
    random = np.random.default_rng(1)
    initial, former = random.normal(size=(5, 2)).astype("f4"), random.normal(size=(4, 2)).astype("f4")
    rows = SourceRows(np.array([0, 3, NONE, 1, NONE]), np.array([0, 1, 1, 1, NONE]))
    found = rows.taken(initial, former, or_unknown)
    np.testing.assert_array_equal(found[[0, 1, 3]], former[[0, 3, 1]])
    np.testing.assert_array_equal(found[2], former[1] if or_unknown else initial[2])
    np.testing.assert_array_equal(found[4], initial[4])


def test_what_differs_is_said_by_column_and_sizes_are_no_difference():
    today = categorical("c", "abc").spec
    assert differences(today, categorical("c", "x", top_k=7).spec) == []
    assert differences(today, hashed("c", 4).spec) == ["columns of another transform: c"]
    assert differences(today, hashed("d", 4).spec) == ["new columns: c", "columns that are gone: d"]
    two = [{"kind": "categorical", "columns": names} for names in (["a", "b"], ["b", "a"])]
    first, second = (learned([one], []).spec for one in two)
    assert differences(first, second) == ["another order of the columns"]
