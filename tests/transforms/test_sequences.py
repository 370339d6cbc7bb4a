"""Sequences: the newest values kept in order, one vocabulary for several columns, and what cannot be."""

import json

import numpy as np
import pyarrow as pa
import pytest
import tensorflow as tf

from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.analyzers import LogCounter, merge
from ctrpipe.transforms.features.learned import Learned
from ctrpipe.transforms.features.preprocessing import layout, preprocessing_fn
from ctrpipe.transforms.log.formats.json_lines import parse_objects
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.values import join_lists

PADDING, UNKNOWN, MISSING = -1, 0, 1
DATA = {"columns": ["click", "items", "genres", "seen", "item", "genre"], "labels": {"ctr": "click"}}
SEQUENCE = {"kind": "sequence", "columns": ["items", "genres"], "shared_with": ["item", "genre"], "max_length": 3}
SPEC = LogSpec.model_validate(
    {
        "data": DATA,
        "features": [
            SEQUENCE,
            {"kind": "sequence", "columns": ["seen"], "separator": ", ", "max_length": 2, "min_count": 2},
            {"kind": "categorical", "columns": ["item"], "top_k": 3},
            {"kind": "categorical", "columns": ["genre"], "transform": "hash", "buckets": 5},
        ],
    }
)
ROWS = {
    "item": ["a", "b", "", "c"],
    "items": ["b|b|b|a", "d", "", "z||c"],
    "genre": ["x", "y", "x", ""],
    "genres": ["x|y|x|x", "y", "", "x||y"],
    "seen": ["p, q, p", "q", "", "r"],
}


def batch(rows) -> dict[str, pa.Array]:
    return {name: pa.array([value.encode() or None for value in values], pa.binary()) for name, values in rows.items()}


def counted(*parts):
    summaries = []
    for part in parts:
        counter = LogCounter.of_log(SPEC)
        counter.add({name: column for name, column in batch(part).items() if name in counter.columns})
        summaries.append(counter.summary())
    return merge(summaries)


def packed(folder) -> tuple[np.ndarray, object]:
    learned = Learned(SPEC, counted(ROWS), folder)
    features = layout(SPEC, lambda column, feature: len(learned._vocabulary(column, feature)[0]))
    inputs = {name: tf.constant(values) for name, values in ROWS.items()} | {"click": tf.zeros(4)}
    ids = preprocessing_fn(inputs, learned)["ids"].numpy()
    return ids, features


def local(ids, features, name) -> list[list[int]]:
    field = next(field for field in features.fields if field.name == name)
    own = ids[:, features.slots_of(name)]
    return np.where(own == 0, PADDING, own - field.offset).tolist()


def test_one_vocabulary_is_counted_over_candidate_and_history_and_parts():
    summary = counted(ROWS)
    assert set(summary.values) == {"item", "seen"}
    # b: 3 + 1, then two of a, c and one of d, z.
    assert summary.vocabulary("item").to_pylist() == [b"b", b"c", b"a", b"z", b"d"]
    first, second = ({name: values[part] for name, values in ROWS.items()} for part in (slice(2), slice(2, 4)))
    halves = counted(first, second)
    assert halves.vocabulary("item").to_pylist() == summary.vocabulary("item").to_pylist()
    both = {"item": halves.values["item"].counts.sum(), "seen": halves.values["seen"].counts.sum()}
    assert both == {"item": 3 + 4 + 1 + 2, "seen": 5}


def test_the_newest_values_are_kept_in_their_order_with_padding_behind(tmp_path):
    ids, features = packed(tmp_path)
    b, c, a = (RESERVED_IDS + index for index in range(3))
    assert local(ids, features, "item") == [[a], [b], [MISSING], [c]]
    assert local(ids, features, "items") == [
        [b, b, a],
        [UNKNOWN, PADDING, PADDING],
        [PADDING] * 3,
        [UNKNOWN, MISSING, c],
    ]
    assert local(ids, features, "seen") == [[2, 3], [2, PADDING], [PADDING] * 2, [UNKNOWN, PADDING]]
    assert features.slots_of("item") == slice(8, 9) and ids.shape == (4, 10)


def test_a_hashed_column_is_shared_as_well(tmp_path):
    ids, features = packed(tmp_path)
    (x,), (y,), _, (missing,) = local(ids, features, "genre")
    assert missing == MISSING and x >= RESERVED_IDS and y >= RESERVED_IDS
    assert local(ids, features, "genres") == [[y, x, x], [y, PADDING, PADDING], [PADDING] * 3, [x, MISSING, y]]


def test_a_missing_element_of_a_list_keeps_its_place_in_a_sequence():
    lists = pa.array([["a", None, "b"], [], None, [None]])
    assert join_lists(lists, "|", "c", "log", {}, keep_missing=True).to_pylist()[:2] == [b"a||b", None]
    assert join_lists(lists, "|", "c", "log", {}).to_pylist()[:2] == [b"a|b", None]
    line = json.dumps({"c": ["a", None, "b"], "d": ["a", None, "b"]}).encode()
    found, wrong = parse_objects([line], ["c", "d"], {"c": "|", "d": "|"}, ordered=["c"])
    assert not wrong and [found[name].to_pylist() for name in ("c", "d")] == [[b"a||b"], [b"a|b"]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shared_with": ["item"]}, "shared_with has 1 entries for 2 columns"),
        ({"shared_with": ["item", "items"]}, "shared_with: items, which is neither a categorical column"),
        (
            {"shared_with": ["item", "seen"], "pooling": "attention"},
            "attention, which seen, a sequence, cannot ask for",
        ),
        ({"shared_with": ["item", "other"]}, "shared_with: other, which is neither a categorical column"),
        ({"top_k": 5}, "of a shared vocabulary belong to"),
        ({"shared_with": [], "pooling": "attention"}, "pooling: attention needs shared_with"),
        ({"max_length": 0}, "greater than or equal to 1"),
    ],
)
def test_a_sequence_that_cannot_be_is_refused(changes, message):
    others = [feature.model_dump() for feature in SPEC.features[1:]]
    with pytest.raises(ValueError, match=message):
        LogSpec.model_validate({"data": DATA, "features": [{**SEQUENCE, **changes}, *others]})


def test_one_name_is_enough_for_one_column():
    features = [{"kind": "sequence", "columns": ["items"], "shared_with": "item", "max_length": 3}]
    spec = LogSpec.model_validate({"data": DATA, "features": [*features, {"kind": "categorical", "columns": ["item"]}]})
    assert spec.vocabulary_owners == {"items": "item"} and spec.vocabulary_columns == ["item"]
    assert spec.counted_columns == {"item": "item", "items": "item"}


def test_a_sequence_shares_the_words_of_another_one(tmp_path):
    words = {"kind": "sequence", "separator": " "}
    features = [
        {**words, "columns": ["query"], "shared_with": "document", "max_length": 2},
        {**words, "columns": ["document"], "role": "item", "max_length": 3, "top_k": 2},
    ]
    data = {"columns": ["click", "query", "document"], "labels": {"ctr": "click"}}
    spec = LogSpec.model_validate({"data": data, "features": features})
    rows = {"query": ["b a", "c"], "document": ["a b c", "b"]}
    counter = LogCounter.of_log(spec)
    counter.add(batch(rows))
    learned = Learned(spec, counter.summary(), tmp_path)
    found = layout(spec, lambda column, feature: len(learned._vocabulary(column, feature)[0]))
    ids = preprocessing_fn({name: tf.constant(own) for name, own in rows.items()} | {"click": tf.zeros(2)}, learned)
    # b comes three times, a and c twice; of these c is the greater.
    b, c = RESERVED_IDS, RESERVED_IDS + 1
    assert local(ids["ids"].numpy(), found, "query") == [[b, UNKNOWN], [c, PADDING]]
    assert local(ids["ids"].numpy(), found, "document") == [[UNKNOWN, b, c], [b, PADDING, PADDING]]
    assert [field.name for field in found.item_fields] == ["document"] and found.total_ids == 1 + RESERVED_IDS + 2


def test_a_row_whose_aligned_sequences_differ_in_length_is_kept_apart(tmp_path):
    lines = [
        "0\tb|a\tx|y\tp\ta\tx",
        "1\tb|a|\tx|y\tp\ta\tx",
        "1\t\t\tp\ta\tx",
        "0\tb|a\t\tp\ta\tx",
        "0\t|\tx|y\tp\ta\tx",
    ]
    (tmp_path / "log.tsv").write_text("\n".join(lines) + "\n")
    read = list(LogReader(SPEC).read(str(tmp_path / "log.tsv")))
    kept = [name or b"" for part in read for name in part.rows["items"].to_pylist()]
    assert kept == [b"b|a", b"", b"|"]
    assert [(reject.line, reject.reason) for part in read for reject in part.rejects] == [
        (2, "genres: 2 values, but items, with which it is aligned, has 3"),
        (4, "genres: 1 values, but items, with which it is aligned, has 2"),
    ]
