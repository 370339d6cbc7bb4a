"""Tables in memory as data: which file they become, and which values arrive in the log's reader."""

import datetime
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ctrpipe
from ctrpipe.common.errors import InputError
from ctrpipe.data import as_given, days_of, files_of, log_of, table_of, write_frame
from ctrpipe.pipeline.config import check_config
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from tests.small_config import SMALL

SPEC = LogSpec.model_validate(
    {
        "data": {"format": "parquet", "labels": {"ctr": "click"}},
        "features": [
            {"kind": "numeric", "columns": ["price", "age"]},
            {"kind": "categorical", "columns": ["shop", "code"]},
            {"kind": "multivalent", "columns": ["tags"], "separator": "|", "max_length": 3},
            {"kind": "time", "columns": ["when"]},
        ],
    }
)
COLUMNS = ("price", "age", "shop", "code", "tags", "when", "click")
EXPECTED = [
    (1.5, 30.0, b"a", b"7", b"x|y", b"2026-11-01 10:00:00", 1.0),
    (None, None, None, None, None, None, 0.0),
    (2.0, 5.0, b"b", b"8", b"z", b"2026-11-02 00:30:00", 1.0),
]


def shop_log() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "click": [True, False, True],
            "price": [1.5, np.nan, 2.0],
            "age": pd.array([30, None, 5], "Int64"),
            "shop": pd.Categorical(["a", None, "b"]),
            "code": pd.array([7, None, 8], "Int32"),
            "tags": [["x", "y"], [], ["z"]],
            "when": pd.to_datetime(["2026-11-01 10:00:00", None, "2026-11-02 00:30:00"]),
        }
    )


def read(frame, folder) -> list[tuple]:
    [batch] = LogReader(SPEC).read(files_of(frame, folder)[0])
    assert batch.rejects == []
    return list(zip(*(batch.rows[name].to_pylist() for name in COLUMNS), strict=True))


def test_values_of_every_kind_of_column_arrive(tmp_path):
    frame = shop_log()
    assert read(frame, tmp_path) == EXPECTED
    others = {"shop": frame["shop"].astype(object), "click": pd.array([True, False, True], "boolean")}
    others |= {"code": pd.Categorical([7, None, 8]), "price": pd.array([1.5, None, 2.0], "Float32")}
    assert read(frame.assign(**others), tmp_path) == EXPECTED
    others = {"shop": ["a", np.nan, "b"], "click": [1, 0, 1], "age": [30.0, np.nan, 5.0], "code": ["7", None, "8"]}
    assert read(frame.assign(**others), tmp_path) == EXPECTED
    for unit in ("s", "us", "ns"):
        assert read(frame.assign(when=frame["when"].astype(f"datetime64[{unit}]")), tmp_path) == EXPECTED
    table = pa.Table.from_pandas(frame)
    assert read(table, tmp_path) == EXPECTED
    assert read(table.combine_chunks().to_batches()[0], tmp_path) == EXPECTED


def test_a_polars_frame_arrives_as_a_pandas_one(tmp_path):
    polars = pytest.importorskip("polars")
    frame = shop_log()
    own = polars.from_pandas(frame).with_columns(polars.col("shop").cast(polars.Categorical))
    assert read(own, tmp_path) == EXPECTED
    microseconds = own.with_columns(polars.col("when").cast(polars.Datetime("us")))
    assert read(microseconds, tmp_path) == EXPECTED
    with pytest.raises(InputError, match="LazyFrame.*collect"):
        files_of(own.lazy(), tmp_path)


def test_another_library_gives_itself_by_arrows_interface(tmp_path):
    class Own:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table({"a": [1]}).__arrow_c_stream__(requested_schema)

    assert table_of(Own()).to_pydict() == {"a": [1]}
    assert pq.read_table(files_of(Own(), tmp_path)[0]).to_pydict() == {"a": [1]}


def test_the_same_table_is_the_same_file_and_another_one_is_another(tmp_path):
    frame = shop_log()
    first = write_frame(frame, tmp_path)
    written = first.stat().st_mtime_ns
    table = pa.Table.from_pandas(frame)
    in_pieces = pa.concat_tables([table.slice(0, 1), table.slice(1)])
    assert {write_frame(same, tmp_path) for same in (frame.copy(), table, in_pieces)} == {first}
    assert first.stat().st_mtime_ns == written
    assert write_frame(frame.assign(price=[1.5, np.nan, 2.1]), tmp_path) != first
    assert write_frame(frame.iloc[::-1], tmp_path) != first
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_named_index_is_a_column_and_an_unnamed_one_is_not():
    frame = pd.DataFrame({"a": [1, 2]}, index=[5, 6])
    assert table_of(frame).column_names == ["a"]
    assert table_of(frame.rename_axis("user")).to_pydict() == {"user": [5, 6], "a": [1, 2]}
    two = frame.set_index(pd.MultiIndex.from_tuples([("x", 1), ("y", 2)], names=["user", None]))
    assert table_of(two).to_pydict() == {"user": ["x", "y"], "a": [1, 2]}


def test_types_of_pandas_that_no_log_has_become_what_they_mean():
    passed = pd.to_timedelta([1.5, None, 90], unit="s")
    frame = pd.DataFrame(
        {
            "bin": pd.cut(pd.Series([1, None, 5]), [0, 3, 7]),
            "month": pd.PeriodIndex(["2026-01", None, "2026-03"], freq="M"),
            "sparse": pd.arrays.SparseArray([0, 1, 0]),
            "ns": passed.astype("timedelta64[ns]"),
            "ms": passed.astype("timedelta64[ms]"),
            "id": pd.Series([2**64 - 1, None, 7], dtype=object),
            3: pd.Categorical(pd.interval_range(0, 3)),
        }
    )
    assert table_of(frame).to_pydict() == {
        "bin": ["(0, 3]", None, "(3, 7]"],
        "month": ["2026-01", None, "2026-03"],
        "sparse": [0, 1, 0],
        "ns": [1.5, None, 90.0],
        "ms": [1.5, None, 90.0],
        "id": ["18446744073709551615", None, "7"],
        "3": ["(0, 1]", "(1, 2]", "(2, 3]"],
    }


def test_what_is_no_table_is_refused_in_one_line(tmp_path):
    for data in (3, {"a": [1]}, pd.Series([1], name="a")):
        with pytest.raises(InputError):
            files_of(data, tmp_path)
    with pytest.raises(InputError, match=r"column 'a' of the DataFrame: values of several types \(int, str\); give"):
        files_of(pd.DataFrame({"a": [1, "x"]}), tmp_path)
    times = pd.Series([datetime.date(2026, 5, 1), datetime.datetime(2026, 5, 1, 12)], dtype=object)
    with pytest.raises(InputError, match="several types .date, datetime."):  # Arrow would cut the hour off
        files_of(pd.DataFrame({"a": times}), tmp_path)
    with pytest.raises(InputError, match="two columns named 'a'; rename one"):
        files_of(pd.DataFrame([[1, 2]], columns=["a", "a"]), tmp_path)
    with pytest.raises(InputError, match="two columns named '1'"):
        files_of(pd.DataFrame([[1, 2]], columns=["1", 1]), tmp_path)
    with pytest.raises(InputError, match="two columns named 'a'"):
        files_of(pd.DataFrame({"a": [1]}, index=pd.Index([1], name="a")), tmp_path)
    with pytest.raises(InputError, match="column 'a' of the DataFrame: complex numbers"):
        files_of(pd.DataFrame({"a": [1j]}), tmp_path)
    with pytest.raises(InputError, match="has no rows"):
        files_of(shop_log().head(0), tmp_path)


def test_files_and_tables_may_come_together(tmp_path):
    [written] = files_of(shop_log(), tmp_path)
    assert files_of("logs/*.tsv", tmp_path) == ["logs/*.tsv"]
    assert files_of([tmp_path / "a.tsv", shop_log(), "b.tsv"], None)[::2] == [str(tmp_path / "a.tsv"), "b.tsv"]
    assert files_of([shop_log(), "b.tsv"], tmp_path) == [written, "b.tsv"]
    assert files_of(None, tmp_path) == []


def test_a_table_is_parted_into_days(tmp_path):
    frame = shop_log().dropna(subset="when")
    days = days_of(frame, "when", tmp_path)
    assert [day.rpartition("/")[2] for day in days] == ["2026-11-01", "2026-11-02"]
    [first] = (tmp_path / days[0]).iterdir()
    assert pq.read_table(first)["when"].to_pylist() == [datetime.datetime(2026, 11, 1, 10)]
    assert days_of(frame, "when", tmp_path) == days
    by_name = days_of({"2026-11-01": frame.head(1), "2026-11-02": frame.tail(1)}, None, tmp_path)
    assert [day.rpartition("/")[2] for day in by_name] == ["2026-11-01", "2026-11-02"]
    assert days_of("logs/day=*", None, tmp_path) == ["logs/day=*"]
    with pytest.raises(InputError, match="day=None: name the column.*when"):
        days_of(frame, None, tmp_path)


TEMPORARY = """
import pandas as pd
from ctrpipe.data import files_of
print(files_of(pd.DataFrame({"a": [1]}), None)[0])
"""


def test_what_no_folder_was_named_for_goes_with_the_process():
    done = subprocess.run([sys.executable, "-c", TEMPORARY], capture_output=True, text=True, check=True)
    import pathlib

    path = pathlib.Path(done.stdout.strip())
    assert path.name.startswith("frame-") and not path.parent.exists()


def test_three_tables_are_a_split_by_files(tmp_path):
    config = check_config({**SMALL, "data": {"format": "parquet", "labels": {"ctr": "click"}}}, (), "small")
    frames = {name: pd.DataFrame({"click": [number]}) for number, name in enumerate(("train", "validation", "test"))}
    divided, patterns = log_of(config, frames, tmp_path)
    placed, files = divided.placed(patterns)
    assert [pd.read_parquet(file)["click"][0] for file in files] == [0, 1, 2]
    assert placed.data.split.files.test == files[2:] and placed.data.split.by == "files"
    assert log_of(config, "log.parquet", tmp_path) == (config, ["log.parquet"])
    with pytest.raises(InputError, match="a dict has the keys train, validation and test, not train, valid; give"):
        log_of(config, {"train": "a", "valid": "b"}, tmp_path)


def test_objects_in_a_frame_are_flattened_by_name(tmp_path):
    rows = [{"click": n % 2, "ad": {"campaign": f"c{n % 3}", "bid": {"price": n / 2}}, "n": n} for n in range(60)]
    for frame in (pl.DataFrame(rows), pd.DataFrame(rows), pa.Table.from_pylist(rows)):
        draft = ctrpipe.init(frame)
        assert {"ad.campaign", "ad.bid.price"} <= {
            name for each in draft.config["features"] for name in each["columns"]
        }
        assert not ctrpipe.check(draft).errors


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("/tmp/a/frame-0123456789abcdef.parquet: no column", "the DataFrame: no column"),
        ("runs/x/data/frame-0123456789abcdef.parquet:17: bad", "the DataFrame, row 17 (from 1): bad"),
        ("d/frame-0123456789abcdef/2026-11-02/frame-0123456789abcdef.parquet: bad", "the DataFrame of 2026-11-02: bad"),
        ("/data/frame-1.parquet: no such file", "/data/frame-1.parquet: no such file"),
    ],
)
def test_a_message_names_the_dataframe_and_not_its_file(text, given):
    assert as_given(text) == given


def test_a_message_names_the_dataframe_where_its_folder_has_blanks(tmp_path):
    for folder, row in ((tmp_path / "my runs (2)", ":7"), (tmp_path / "other runs", "")):
        path = write_frame(pd.DataFrame({"a": [1, 2]}), folder)
        assert as_given(f"in {path}{row}: bad") == f"in the DataFrame{', row 7 (from 1)' if row else ''}: bad"
    day = days_of({"the 2nd": pd.DataFrame({"a": [1, 2]})}, None, tmp_path / "days of mine")[0]
    (name,) = os.listdir(day)
    assert as_given(f"{day}/{name}:3: bad") == "the DataFrame of the 2nd, row 3 (from 1): bad"


def test_a_mistake_in_a_dataframe_names_no_file():
    with pytest.raises(InputError, match="^the DataFrame: no column besides the label click carries information"):
        ctrpipe.init(pd.DataFrame({"click": [0, 1] * 50, "device": ["a", "b"] * 50}))


def test_a_check_names_no_file_of_a_dataframe_and_says_where_an_empty_split_would_be():
    frame = pd.DataFrame({"click": [0, 1] * 20, "c": "a", "day": ["2026-05-01"] * 39 + ["9999-12-31"]})
    data = {"format": "parquet", "labels": {"ctr": "click"}}
    split = {"by": "time", "column": "day", "last": "1d"}
    config = SMALL | {"data": data | {"split": split}, "features": [{"kind": "categorical", "columns": ["c"]}]}
    found = ctrpipe.check(config, frame).errors
    said = "data.split: the validation split has no rows (day: train 2026-05-01 to 2026-05-01, test 9999-12-31 to"
    assert any(error.startswith(said) and error.endswith("give more data or change data.split") for error in found)
    malformed = ctrpipe.check(config, frame.assign(click=[0, 1, 2, 3] * 10)).errors
    assert any("as the DataFrame, row 3 (from 1)" in error or "as the DataFrame: row 3" in error for error in malformed)


def test_what_pandas_makes_of_a_map_is_a_map():
    maps = pa.array([[("a", 0.5), ("b", 1.0)], None, []], pa.map_(pa.string(), pa.float64()))
    table = pa.table({"topics": maps, "n": [1, 2, 3]})
    assert table_of(table.to_pandas()).to_pydict() == table_of(table).to_pydict()
    mixed = pd.DataFrame({"topics": [[("a", 0.5), ("b", 1.0, 2)]]})
    with pytest.raises(InputError, match="column 'topics' of the DataFrame: list"):
        table_of(mixed)
