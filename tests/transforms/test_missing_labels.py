"""A log of several tasks, in which a row may lack a label: an order is known only after a click."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.features.packed_files import PackedWriter, label_means, rows_out_of_order
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.schema import raw_schema
from ctrpipe.transforms.log.spec import LogSpec

# click, order, watched seconds, ad
ROWS = [
    ("0", "", "3", "a"),
    ("1", "1", "", "b"),
    ("", "0", "12", "c"),
    ("", "", "", "d"),
    ("1", "2", "9", "e"),
    ("1", "0", "x", "f"),
]
KNOWN = [("a", 0.0, None, 0.0), ("b", 1.0, 1.0, None), ("c", None, 0.0, 1.0)]
REASONS = [
    "click, order, watched: one label at least must be known, found none",
    "order: the label must be 0 or 1, found '2'",
    "watched: the label must be a number, found 'x'",
]


def spec(file_format: str, labels: dict | None = None, **data) -> LogSpec:
    labels = labels or {"ctr": "click", "cvr": "order", "long": {"column": "watched", "threshold": 10}}
    return LogSpec.model_validate(
        {
            "data": {"format": file_format, "header": file_format == "csv", "labels": labels, **data},
            "features": [{"kind": "categorical", "columns": ["ad"]}],
        }
    )


def write(path, rows) -> None:
    names = ("click", "order", "watched", "ad")
    if path.suffix == ".csv":
        path.write_text("\n".join(",".join(row) for row in [names, *rows]) + "\n")
    elif path.suffix == ".jsonl":
        given = [{name: value for name, value in zip(names, row, strict=True) if value} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in given))
    else:
        columns = [[value or None for value in column] for column in zip(*rows, strict=True)]
        pa.parquet.write_table(pa.table(dict(zip(names, columns, strict=True))), path)


def read(path, log: LogSpec):
    rows, reasons = [], []
    for batch in LogReader(log).read(str(path)):
        rows += [
            (row["ad"].decode(), row["click"], row.get("order"), row.get("watched")) for row in batch.rows.to_pylist()
        ]
        reasons += [reject.reason for reject in batch.rejects]
    return rows, reasons


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_a_row_with_one_label_counts_and_one_without_any_is_malformed(tmp_path, name):
    path = tmp_path / f"log.{name}"
    write(path, ROWS)
    assert read(path, spec(name)) == (KNOWN, REASONS)


@pytest.mark.parametrize("word", ["NULL", "NaN", "-1"])
def test_words_for_a_missing_value_are_a_missing_label(tmp_path, word):
    path = tmp_path / "log.csv"
    write(path, [tuple(value or word for value in row) for row in ROWS])
    assert read(path, spec("csv", missing_values=["NULL", "NaN", "-1"])) == (KNOWN, REASONS)


def test_words_of_a_label_come_before_missing_ones(tmp_path):
    path = tmp_path / "log.csv"
    write(path, [("1", "", "", "a"), ("0", "bought", "", "b"), ("", "NULL", "", "c")])
    labels = {"ctr": "click", "cvr": {"column": "order", "positive": ["bought"], "negative": [""]}}
    rows, reasons = read(path, spec("csv", labels, missing_values=["NULL"]))
    assert rows == [("a", 1.0, 0.0, None), ("b", 0.0, 1.0, None)]
    assert reasons == ["click, order: one label at least must be known, found none"]


def test_the_only_label_of_a_log_may_not_be_missing(tmp_path):
    path = tmp_path / "log.csv"
    write(path, ROWS[:3])
    rows, reasons = read(path, spec("csv", {"ctr": "click"}))
    assert [row[0] for row in rows] == ["a", "b"] and reasons == ["click: the label must be 0 or 1, found nothing"]


def test_the_schema_allows_what_may_be_missing():
    several = {feature.name: feature.presence.min_fraction for feature in raw_schema(spec("csv", weight="w")).feature}
    assert several == {"ad": 0, "click": 0, "order": 0, "watched": 0, "w": 1}
    alone = {
        feature.name: feature.presence.min_fraction for feature in raw_schema(spec("csv", {"ctr": "click"})).feature
    }
    assert alone == {"ad": 0, "click": 1}


def ingested(tmp_path, rows):
    write(tmp_path / "log.csv", rows)
    folders = {name: tmp_path / name for name in ("train", "validation", "test")}
    for folder in folders.values():
        folder.mkdir()
    labels, split = {"ctr": "click", "cvr": "order"}, {"by": "order", "validation": 0.25, "test": 0.25}
    log = spec("csv", labels, split=split)
    return ingest(log, [str(tmp_path / "log.csv")], 1, folders, tmp_path / "dead.jsonl", Workers(processes=1))


def test_clicks_are_counted_among_the_rows_that_have_the_label(tmp_path):
    rows = [("1", "1", "", "a"), ("0", "", "", "a"), ("", "0", "", "b"), ("", "1", "", "b")] * 6
    result = ingested(tmp_path, rows)
    assert result.rows == {"train": 12, "validation": 6, "test": 6} and result.rejected == 0
    assert result.positives["train"] == 3


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("1", "", "", "a"), ("0", "", "", "a")] * 12, "order is missing in all 12 train rows"),
        ([("1", "1", "", "a"), ("", "0", "", "a")] * 12, "click is 1 in all 6 train rows"),
    ],
)
def test_a_task_that_nothing_can_be_learned_of_is_refused(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        ingested(tmp_path, rows)


def test_the_rate_of_a_packed_label_is_that_of_its_rows(tmp_path):
    label = np.array([[0, np.nan], [1, 1], [np.nan, 0], [1, np.nan]], np.float32)
    for number, weight in enumerate((None, [[1.0], [2.0], [4.0], [3.0]])):
        path = tmp_path / f"{number}.parquet"
        with PackedWriter(path) as writer:
            rows = {"ids": np.ones((4, 1), np.int32), "label": label}
            writer.write(rows if weight is None else {**rows, "weight": np.array(weight, np.float32)})
        expected = [2 / 3, 1 / 2] if weight is None else [5 / 6, 2 / 6]
        np.testing.assert_allclose(label_means([path]), expected, rtol=1e-12)
        assert rows_out_of_order([path]).tolist() == [0]
    with PackedWriter(tmp_path / "none.parquet") as writer:
        writer.write({"ids": np.ones((2, 1), np.int32), "label": np.array([[1, np.nan], [0, np.nan]], np.float32)})
    assert label_means([tmp_path / "none.parquet"]).tolist() == [0.5, 0.0]


def test_a_number_between_0_and_1_is_a_rate(tmp_path):
    path = tmp_path / "log.csv"
    write(
        path,
        [
            ("0.25", "1", "", "a"),
            ("1e-3", "0", "", "b"),
            ("1.0", "0.5", "", "c"),
            ("1.1", "0", "", "d"),
            ("-0.1", "0", "", "e"),
        ],
    )
    rows, reasons = read(path, spec("csv", {"ctr": "click"}))
    assert [(row[0], row[1]) for row in rows] == [("a", 0.25), ("b", pytest.approx(0.001)), ("c", 1.0)]
    assert reasons == [f"click: the label must be 0 or 1, found '{value}'" for value in ("1.1", "-0.1")]
    words = {"ctr": {"column": "click", "positive": ["1"], "negative": ["0"]}}
    assert len(read(path, spec("csv", words))[1]) == 5  # where words are given, no other value counts


def test_rates_are_counted_and_few_of_them_are_no_single_class(tmp_path):
    result = ingested(tmp_path, [("0.001", "0", "", "a"), ("0", "0", "", "b")] * 12)
    assert result.rates == {"click": 12} and result.positives == {"train": 1, "validation": 1, "test": 1}


def test_sampled_negatives_of_rates_are_refused(tmp_path):
    write(tmp_path / "log.csv", [("0.5", "", "", "a"), ("0", "", "", "b")] * 12)
    folders = {name: tmp_path / name for name in ("train", "validation", "test")}
    for folder in folders.values():
        folder.mkdir()
    split = {"by": "order", "validation": 0.25, "test": 0.25}
    log = spec("csv", {"ctr": "click"}, split=split, negative_sampling=0.5)
    with pytest.raises(InputError, match="data.negative_sampling: the labels of click are rates"):
        ingest(log, [str(tmp_path / "log.csv")], 1, folders, tmp_path / "dead.jsonl", Workers(processes=1))
