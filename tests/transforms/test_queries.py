"""Queries and tables as logs."""

import sqlite3

import deltalake
import duckdb
import pyarrow as pa
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.store_names import with_urls
from ctrpipe.pipeline.config.load import check_config
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.draft.page import draft
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.transforms.log import queries
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.queries import has_order, is_query, told_of_order, written
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from tests.small_config import SMALL
from tests.small_config import joined as with_changes

SPEC = LogSpec.model_validate(
    {
        "data": {"format": "parquet", "labels": {"ctr": "y"}},
        "features": [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}],
    }
)
TABLE = pa.table({"y": [0, 1, 1, 0], "n": [1.5, None, 3.0, 4.0], "c": ["a", None, "b", "c"]})
ROWS = [(0.0, 1.5, b"a"), (1.0, None, None), (1.0, 3.0, b"b"), (0.0, 4.0, b"c")]


def rows_of(pattern):
    batches = [batch for path in find_files([pattern]) for batch in LogReader(SPEC).read(path)]
    return [tuple(row[name] for name in ("y", "n", "c")) for batch in batches for row in batch.rows.to_pylist()]


def as_csv(folder):
    (folder / "log.csv").write_text("y,n,c\n0,1.5,a\n1,,\n1,3,b\n0,4,c\n")
    return f"select * from '{folder / 'log.csv'}'"


def test_a_query_of_files_is_a_log(tmp_path):
    query = as_csv(tmp_path)
    assert rows_of(f"duckdb:{query}") == ROWS
    assert rows_of(f"duckdb: {query} where c is not null order by n desc") == [ROWS[3], ROWS[2], ROWS[0]]
    made = written([f"duckdb:{query}", "other.csv"], tmp_path / "data")
    again = written([f"duckdb:{query}"], tmp_path / "data")
    assert made == [again[0], "other.csv"] and len(list((tmp_path / "data").iterdir())) == 1


def test_databases_of_duckdb_and_of_sqlalchemy_are_logs(tmp_path, monkeypatch):
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.register("t", TABLE)
        connection.execute("create table log as select * from t")
    assert rows_of(f"duckdb:{tmp_path / 'shop.duckdb'}:select * from log order by n nulls first")[1:] == [
        ROWS[0],
        *ROWS[2:],
    ]
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table log (y, n, c)")
        connection.executemany("insert into log values (?, ?, ?)", zip(*TABLE.to_pydict().values(), strict=True))
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    assert rows_of(f"sql:{url};select * from log") == ROWS
    queries.rows_of.cache_clear()
    monkeypatch.setattr(queries, "_BATCH_ROWS", 1)  # a part of nothing but missing values has no type
    assert rows_of(f"sql:{url}; select * from log ") == ROWS


def test_versions_of_a_delta_table_are_logs(tmp_path):
    deltalake.write_deltalake(str(tmp_path / "log"), TABLE.slice(0, 2))
    deltalake.write_deltalake(str(tmp_path / "log"), TABLE.slice(2), mode="append")
    assert sorted(rows_of(f"delta:{tmp_path / 'log'}"), key=str) == sorted(ROWS, key=str)
    assert rows_of(f"delta:{tmp_path / 'log'}@0") == ROWS[:2]
    for pattern in (tmp_path / "log", tmp_path / "log" / "*.parquet"):  # which hold removed rows too
        with pytest.raises(InputError, match=f"^{tmp_path}/log: a Delta table, .*; write delta:{tmp_path}/log$"):
            find_files([str(pattern)])


@pytest.mark.slow
def test_an_iceberg_table_is_a_log(tmp_path):
    from pyiceberg.catalog.sql import SqlCatalog

    catalog = SqlCatalog("default", uri=f"sqlite:///{tmp_path / 'catalog.db'}", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.log", schema=TABLE.schema)
    table.append(TABLE)
    first = table.current_snapshot().snapshot_id
    table.append(TABLE.slice(0, 1))
    assert sorted(rows_of(f"iceberg:{table.metadata_location}"), key=str) == sorted([*ROWS, ROWS[0]], key=str)
    assert rows_of(f"iceberg:{table.metadata_location}@{first}") == ROWS
    newest = table.metadata_location.removeprefix("file://")
    folder = newest.partition("/metadata/")[0]
    with pytest.raises(
        InputError, match=f"neither metadata nor a table of a catalog; its newest metadata are iceberg:{newest}"
    ):
        find_files([f"iceberg:{folder}"])


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("duckdb:selct 1", r"duckdb:selct 1: cannot be read \(Parser Error"),
        ("duckdb:select * from 'none.csv'", "cannot be read .*none.csv"),
        ("duckdb:none.duckdb:select 1", "none.duckdb: no such file; write duckdb:FILE:QUERY"),
        ("duckdb:create table t (a int)", "no rows; is it the right query"),
        ("duckdb:select 1 where false", "no rows; is it the right query or table?"),
        ("sql:sqlite:///x.db", "no query; write sql:URL;QUERY"),
        (
            "sql:nosuch://me:secret@host/db;select 1",
            "sql:select 1: the URL has a password, which a run would write down; leave it to the driver",
        ),
        ("sql:nosuch://host/db;select 1", "sql:select 1: cannot be read"),
        ("sql:sqlite:///none.db;select 1", "sql:select 1: none.db: no such file; correct the URL"),
        ("sql:sqlite://;select 1", "sql:select 1: :memory:: no such file; correct the URL"),
        ("delta:none", "delta:none: cannot be read"),
        (
            "iceberg:none.json",
            "iceberg:none.json: no such file; name the table's metadata, as in iceberg:FOLDER/metadata/",
        ),
        (
            "iceberg:some/table",
            "iceberg:some/table: neither metadata nor a table of a catalog; name the table's metadata",
        ),
        (
            "iceberg:none.shop.log",
            "there is no catalog none; describe it in ~/.pyiceberg.yaml .* PYICEBERG_CATALOG__NONE__U",
        ),
    ],
)
def test_a_mistake_is_one_line_without_the_password(tmp_path, monkeypatch, pattern, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message) as error:
        find_files([pattern])
    assert "\n" not in str(error.value) and "secret" not in str(error.value)
    assert not list(tmp_path.iterdir())


def test_a_statement_does_not_change_a_database_of_sqlite(tmp_path):
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("create table log (y)")
    for statement in ("drop table log", "insert into log values (1) returning y"):
        with pytest.raises(InputError, match="cannot be read .*readonly database"):
            find_files([f"sql:sqlite:///{tmp_path / 'shop.db'};{statement}"])
    assert sqlite3.connect(tmp_path / "shop.db").execute("select count(*) from log").fetchone() == (0,)


def test_what_is_a_file_is_no_query(tmp_path):
    assert not any(map(is_query, ["log.csv", "/a/duckdb", "s3://bucket/sql", "delta", "c:/sql:x"]))


@pytest.mark.parametrize(("pattern", "extra"), [("duckdb:select 1", "sql"), ("delta:x", "lakes")])
def test_without_its_library_the_extra_is_named(tmp_path, monkeypatch, pattern, extra):
    monkeypatch.setattr("ctrpipe.common.extras.is_installed", lambda module: False)
    with pytest.raises(InputError, match=rf"{pattern} needs the extra {extra} .*pip install 'ctrpipe\[{extra}\]'"):
        queries.written([pattern], tmp_path)


def test_first_look_check_and_run_read_a_query(tmp_path):
    rows = "".join(f"{n % 2},m{n % 3},{n}\n" for n in range(200))
    (tmp_path / "log.csv").write_text("click,device,n\n" + rows)
    query = f"duckdb:select click, device, n + 0.5 as n from '{tmp_path / 'log.csv'}' where n < 100"
    text, _ = draft([query])
    assert "format: parquet" in text and f"paths: ['{query.replace(chr(39), chr(39) * 2)}']" in text
    data = {"format": "parquet", "header": False, "labels": {"ctr": "click"}, "split": {"by": "order"}}
    config = check_config(
        with_changes(SMALL, {"data": data, "features": [{"kind": "categorical", "columns": ["device"]}]}), (), "x"
    )
    found = check_log(config, [query])
    assert found.rows == 100 and not found.errors
    [log] = joined([query], config, tmp_path / "run")
    assert log.startswith(str(tmp_path / "run" / "data" / "query-")) and len(find_files([log])) == 1


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("log.csv", True),
        ("s3://bucket/order by/log.csv", True),
        ("duckdb:select * from 'log.csv'", False),
        ("duckdb:select * from 'log.csv' ORDER\n BY shown_at", True),
        ("sql:sqlite:///shop.db;select order_by from log", False),
        ("duckdb:select *, row_number() over (order by ts) as n from log", False),
        ("duckdb:select * from (select * from log order by ts) where a", False),
        ("duckdb:select * from log order by coalesce(a, least(b, c))", True),
        ("sql:sqlite:///shop.db;select * from log order by 1", True),
        ("delta:shop", False),
        ("iceberg:prod.shop.log", False),
    ],
)
def test_only_files_and_ordered_queries_have_an_order(pattern, expected):
    assert has_order(pattern) == expected and bool(told_of_order([pattern])) != expected


def test_a_draft_of_rows_without_an_order_splits_by_time_or_at_random_and_an_order_is_noted(tmp_path, capsys):
    rows = "".join(f"{n % 3 // 2},m{n % 5},2026-11-01 {n // 60:02}:{n % 60:02}:00\n" for n in range(200))
    (tmp_path / "log.csv").write_text("click,device,shown\n" + rows)
    query = f"duckdb:select * from '{tmp_path / 'log.csv'}'"
    assert "by: time, column: shown" in draft([query])[0]
    assert "split: {by: order}" in draft([f"{query} order by shown"])[0]
    assert "split: {by: hash}" in draft([query.replace("*", "click, device")])[0]
    data = {"format": "parquet", "header": False, "labels": {"ctr": "click"}, "split": {"by": "order"}}
    config = check_config(
        with_changes(SMALL, {"data": data, "features": [{"kind": "categorical", "columns": ["device"]}]}), (), "x"
    )
    [noted] = [note for note in check_log(config, [query]).notes if "these rows have no order" in note]
    assert noted.startswith("duckdb:select * from '")
    joined([query], config, tmp_path / "run")
    assert noted in capsys.readouterr().err


def test_lines_about_a_query_name_it(tmp_path):
    [made] = find_files([f"duckdb:{as_csv(tmp_path)}"])
    assert with_urls(f"{made}: row 3").startswith("duckdb:select * from ")
