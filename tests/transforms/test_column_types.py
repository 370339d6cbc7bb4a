"""The files of a log that have a column with different types: read as the same values, or refused by name."""

import datetime
import decimal
import itertools
import json
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.formats.csv import Csv
from ctrpipe.transforms.log.formats.parquet import Parquet
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec

SPEC = LogSpec.model_validate(
    {
        "data": {"format": "parquet", "labels": {"ctr": "y"}},
        "features": [
            {"kind": "categorical", "columns": ["c"]},
            {"kind": "multivalent", "columns": ["tags"], "max_length": 3},
            {"kind": "numeric", "columns": ["n"]},
            {"kind": "time", "columns": ["t"]},
        ],
    }
)
DAY = datetime.datetime(2026, 5, 1, 12)
CENT = decimal.Decimal("1.50")


def files(tmp_path, *ways, column="c"):
    """One file for each array of the column."""
    paths = []
    for number, values in enumerate(ways):
        rows = {"y": [0], "c": ["a"], "tags": [["a"]], "n": [1.0], "t": ["2026-05-01"]} | {column: values}
        paths.append(str(tmp_path / f"{number}.parquet"))
        pq.write_table(pa.table(rows), paths[-1])
    return paths


def one(value, kind):
    return pa.array([value], kind)


@pytest.mark.parametrize(
    ("column", "ways"),
    [
        ("c", [one(7, pa.int64()), one("7", pa.string()), one(7.0, pa.float64()), one(b"7", pa.binary())]),
        ("c", [one(7, pa.int8()), one(7.0, pa.float32()), one(decimal.Decimal(7), pa.decimal128(3, 0))]),
        ("c", [one(0.1, pa.float32()), one(0.1, pa.float64()), one("0.1", pa.large_string())]),
        ("c", [one(CENT, pa.decimal128(5, 2)), one(CENT, pa.decimal128(6, 3)), one("1.5", pa.string())]),
        ("c", [one(1.5, pa.float64()), one(CENT, pa.decimal256(50, 4))]),
        ("c", [one(DAY.time(), kind) for kind in (pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"))]),
        ("c", [one(DAY, pa.timestamp(unit)) for unit in ("s", "ms", "us", "ns")]),
        ("c", [one(DAY, pa.timestamp("ms", "UTC")), one(DAY, pa.timestamp("ns", "UTC"))]),
        ("c", [one(None, pa.null()), one("a", pa.string()), one("a", pa.string()).dictionary_encode()]),
        ("c", [one(True, pa.bool_()), one(1, pa.int64()), one("1", pa.string())]),
        ("tags", [one([7], pa.list_(pa.int64())), one(["7"], pa.list_(pa.string())), one("7", pa.string())]),
        ("n", [one(7, pa.int64()), one("7", pa.string()), one(decimal.Decimal("7.0"), pa.decimal128(3, 1))]),
        ("t", [one(DAY, pa.timestamp("us")), one(DAY, pa.timestamp("ns")), one(str(DAY), pa.string())]),
        ("t", [one(DAY, pa.timestamp("s")), one(1777636800, pa.int64()), one(DAY, pa.timestamp("ns", "UTC"))]),
    ],
)  # fmt: skip
def test_types_with_the_same_texts_are_read_as_the_same_values(column, ways, tmp_path):
    paths = files(tmp_path, *ways, column=column)
    assert len(plan(paths, SPEC)) == len(ways)
    read = [batch for path in paths for batch in LogReader(SPEC).read(path)]
    assert not any(batch.rejects for batch in read)
    values = {value for batch in read for value in batch.rows[column].to_pylist()} - {None}
    assert len(values) == 1 or column == "t"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (one(DAY, pa.timestamp("us")), one(DAY, pa.timestamp("us", "UTC"))),
        (one(DAY, pa.timestamp("us")), one(DAY.date(), pa.date32())),
        (one(DAY, pa.timestamp("us")), one(str(DAY), pa.string())),
        (one(DAY, pa.timestamp("us")), one(1777636800, pa.int64())),
        (one(DAY.time(), pa.time32("ms")), one("12:00", pa.string())),
    ],
)
@pytest.mark.parametrize("turned", [False, True])
def test_types_with_other_texts_are_refused_by_file_column_and_types(first, second, turned, tmp_path):
    first, second = (second, first) if turned else (first, second)
    missing = one(None, pa.null())
    paths = files(tmp_path, missing, first, second)
    told = f"{paths[2]}: column c is of type {second.type}, and of type {first.type} in {paths[1]}: equal values"
    with pytest.raises(InputError) as raised:
        plan(paths, SPEC)
    assert str(raised.value).startswith(told)
    tags = [one([values[0].as_py()], pa.list_(values.type)) for values in (first, second)]
    with pytest.raises(InputError, match="column tags is of type"):
        plan(files(tmp_path, *tags, column="tags"), SPEC)


def test_each_pair_of_types_is_compared(tmp_path):
    ways = [one(1, pa.int64()), one(True, pa.bool_()), one("true", pa.string())]
    for order in itertools.permutations(ways):
        with pytest.raises(InputError, match=r"is of type string, and of type bool in .*'true' is another category"):
            plan(files(tmp_path, *order), SPEC)


def test_a_decimal_beside_a_text_with_the_zeros_of_its_type_is_refused(tmp_path):
    paths = files(tmp_path, one(CENT, pa.decimal128(5, 2)), one("1.50", pa.string()))
    with pytest.raises(
        InputError, match=r"decimal128\(5, 2\) in .*'1.50' is another category than the same number there"
    ):
        plan(paths, SPEC)


@pytest.mark.parametrize("text", ["02139", "+5", ".5", "0.50", "-007"])
@pytest.mark.parametrize("column", ["c", "tags"])
def test_a_number_that_is_written_otherwise_is_refused(column, text, tmp_path):
    for ways in itertools.permutations([one(5, pa.int64()), one(text, pa.string()), one("5.0", pa.string())]):
        if column == "tags":
            ways = [one([values[0].as_py()], pa.list_(values.type)) for values in ways]
        told = r"int64>? in .*another category than the same number there"
        with pytest.raises(InputError, match=told) as raised:
            plan(files(tmp_path, *ways, column=column), SPEC)
        assert f"'{text}'" in str(raised.value)
    assert plan(files(tmp_path, one(text, pa.string()), one("5", pa.string())), SPEC)  # texts alone are as they are


@pytest.mark.parametrize(
    ("kind", "value", "same", "other", "told"),
    [
        (pa.bool_(), True, "1", "True", "'True' is another category than the same boolean there"),
        (pa.int64(), 2139, "2139", "02139", "'02139' is another category than the same number there"),
        (pa.float64(), 12000.0, "12000", "1.2e+04", r"'1.2e\+04' is another category than the same number there"),
        (pa.int64(), 12000, "12000", "12e3", "'12e3' is another category than the same number there"),
        (pa.decimal128(5, 2), CENT, "1.5", "1.50", "'1.50' is another category than the same number there"),
        (pa.string(), "True", "True", None, ""),
    ],
)
@pytest.mark.parametrize("name", ["csv", "jsonl"])
@pytest.mark.parametrize("column", ["c", "tags"])
def test_a_text_file_beside_a_typed_one_is_compared(column, name, kind, value, same, other, told, tmp_path):
    values = one([value], pa.list_(kind)) if column == "tags" else one(value, kind)
    typed, text = *files(tmp_path, values, column=column), str(tmp_path / f"log.{name}")
    spec = SPEC.model_validate(
        SPEC.model_dump() | {"data": {"format": name, "header": name == "csv", "labels": {"ctr": "y"}}}
    )

    def write(written):
        row = {"y": "0", "c": "a", "tags": "a", "n": "1", "t": "2026-05-01"} | {column: written}
        if column == "tags":
            row[column] = f"a|{written}" if name == "csv" else ["a", written]
        lines = [json.dumps(row)] if name == "jsonl" else [",".join(row), ",".join(row.values())]
        (tmp_path / f"log.{name}").write_text("\n".join(lines) + "\n")

    write(same)
    assert len(plan([typed, text], spec)) == 2
    if other:
        write(other)
        where = f"column {column} is text, and of type .* in {re.escape(typed)}: "
        for order in ([typed, text], [text, typed]):
            with pytest.raises(InputError, match=where + told):
                plan(order, spec)
        assert plan([text], spec)


def test_a_timestamp_beside_a_text_file_is_refused(tmp_path):
    [typed] = files(tmp_path, one(DAY, pa.timestamp("us")))
    (tmp_path / "log.csv").write_text("y,c,tags,n,t\n0,2026-05-01T12:00,a,1,2026-05-01\n")
    data = {"format": "csv", "header": True, "labels": {"ctr": "y"}}
    with pytest.raises(InputError, match=r"log.csv: column c is text, and of type timestamp\[us\] in .*: equal values"):
        plan([typed, str(tmp_path / "log.csv")], SPEC.model_validate(SPEC.model_dump() | {"data": data}))


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_a_file_of_texts_is_read_once_for_all_columns(name, tmp_path, monkeypatch):
    typed = {"y": [0], "c": [7], "tags": [[7]], "n": [1.0], "t": ["2026-05-01"]}
    pq.write_table(pa.table(typed), tmp_path / "typed.parquet")
    text = str(tmp_path / f"text.{name}")
    if name == "csv":
        (tmp_path / "text.csv").write_text("y,c,tags,n,t\n0,7,a|7,1,2026-05-01\n")
    else:
        pq.write_table(pa.table(typed | {"c": ["7"], "tags": [["a", "7"]]}), text)
    reads = []
    for kind, method in ((Csv, "read"), (Parquet, "texts")):
        whole = getattr(kind, method)
        monkeypatch.setattr(kind, method, lambda self, *given, of=whole: reads.append(given) or of(self, *given))
    data = {"format": name, "header": name == "csv", "labels": {"ctr": "y"}}
    assert plan([str(tmp_path / "typed.parquet"), text], SPEC.model_validate(SPEC.model_dump() | {"data": data}))
    assert len(reads) == 1
