"""Labels of numbers, and labels of events that need another one."""

import numpy as np
import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.learned import Learned, numbers_that_stay
from ctrpipe.transforms.log.schema import raw_schema
from ctrpipe.transforms.log.spec import LogSpec
from tests.transforms.test_missing_labels import read, spec, write

# click, order, watched seconds, ad
ROWS = [
    ("0", "", "3", "a"),
    ("0", "0", "-2.5", "b"),
    ("1", "1", "", "c"),
    ("1", "0", "1e3", "d"),
    ("", "1", "7", "e"),
    ("0", "1", "7", "f"),
    ("1", "", "x", "g"),
]
LABELS = {
    "ctr": "click",
    "cvr": {"column": "order", "after": "ctr"},
    "seconds": {"column": "watched", "predicts": "mean"},
}


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_an_order_counts_after_a_click_and_a_number_is_taken_as_it_is(tmp_path, name):
    path = tmp_path / f"log.{name}"
    write(path, ROWS)
    rows, reasons = read(path, spec(name, LABELS))
    assert rows == [
        ("a", 0.0, None, 3.0),
        ("b", 0.0, None, -2.5),
        ("c", 1.0, 1.0, None),
        ("d", 1.0, 0.0, 1000.0),
        ("e", None, None, 7.0),
    ]
    assert reasons == [
        "order: the label is 1 where click, which it follows, is 0",
        "watched: the label must be a number, found 'x'",
    ]


def test_a_count_is_not_negative(tmp_path):
    path = tmp_path / "log.csv"
    write(path, ROWS[:2])
    rows, reasons = read(path, spec("csv", {**LABELS, "seconds": {"column": "watched", "predicts": "count"}}))
    assert [row[0] for row in rows] == ["a"]
    assert reasons == ["watched: the label must be a number of 0 or more, found '-2.5'"]


def test_events_follow_one_another_in_a_chain(tmp_path):
    path = tmp_path / "log.csv"
    write(path, [("1", "0", "", "a"), ("1", "1", "0", "b"), ("0", "", "", "c"), ("1", "0", "1", "d")])
    labels = {
        "ctr": "click",
        "cart": {"column": "order", "after": "ctr"},
        "buy": {"column": "watched", "after": "cart"},
    }
    rows, reasons = read(path, spec("csv", labels))
    assert rows == [("a", 1.0, 0.0, None), ("b", 1.0, 1.0, 0.0), ("c", 0.0, None, None)]
    assert reasons == ["watched: the label is 1 where order, which it follows, is 0"]


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({"ctr": "click", "cvr": {"column": "order", "after": "buy"}}, "labels.cvr: after: buy is no task of clicks"),
        ({"cvr": {"column": "order", "after": "ctr"}, "ctr": "click"}, "before cvr there is no task"),
        ({"s": {"column": "watched", "predicts": "mean"}, "ctr": "click"}, "the first task, s, predicts: mean"),
        ({"ctr": "click", "s": {"column": "x", "predicts": "mean", "threshold": 3}}, "predicts: mean takes a number"),
        ({"ctr": "click", "s": {"column": "x", "predicts": "best"}}, "'click', 'mean', 'median' or 'count'"),
        (
            {"ctr": "click", "s": {"column": "x", "predicts": "mean"}, "t": {"column": "y", "after": "s"}},
            "labels.t: after: s is no task of clicks",
        ),
    ],
)
def test_a_label_that_cannot_be_is_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        spec("csv", labels)


def learned(log: LogSpec, watched: list[float | None], tmp_path) -> Learned:
    counter = LogCounter.of_log(log)
    assert "watched" in counter.columns
    counter.add({"ad": pa.array([b"a"] * len(watched)), "watched": pa.array(watched, pa.float32())})
    return Learned(log, counter.summary(), tmp_path)


def test_a_number_is_measured_in_the_training_rows(tmp_path):
    watched = [3.0, None, 5.0, 10.0]
    known = np.array([3.0, 5.0, 10.0])
    of_mean = learned(spec("csv", LABELS), watched, tmp_path).numbers()["watched"]
    np.testing.assert_allclose(of_mean, [known.mean(), known.std()])
    count = spec("csv", {**LABELS, "seconds": {"column": "watched", "predicts": "count"}})
    np.testing.assert_allclose(learned(count, watched, tmp_path).numbers()["watched"], [0.0, known.mean()])
    np.testing.assert_allclose(learned(count, [0.0, 0.0], tmp_path).numbers()["watched"], [0.0, 1.0])
    with pytest.raises(InputError, match="watched has no number in the training rows"):
        learned(count, [None], tmp_path).numbers()
    # A warm start goes on in the same units, unless the task predicts something else now.
    former = {"watched": of_mean}
    assert numbers_that_stay(spec("csv", LABELS), spec("csv", LABELS), former) == former
    assert numbers_that_stay(count, spec("csv", LABELS), former) == {}


def test_the_schema_bounds_clicks_and_no_numbers():
    domains = {feature.name: feature.float_domain for feature in raw_schema(spec("csv", LABELS)).feature}
    assert domains["click"].HasField("max") and domains["order"].max == 1.0
    assert not domains["watched"].HasField("max") and not domains["watched"].HasField("min")
