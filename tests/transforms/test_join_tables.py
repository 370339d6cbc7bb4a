"""Joins of a log with side tables, compared with those of pandas."""

import json
import pathlib
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from click.testing import CliRunner

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.config.load import check_config
from ctrpipe.pipeline.draft.check_log import check_log
from ctrpipe.pipeline.replay.run import ReplayPlan
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.side_tables import Join
from ctrpipe.transforms.tables.join import join_tables, summary_of
from tests.small_config import SMALL
from tests.small_config import joined as with_changes

USERS = "user_id,age\n1,30\n2.0,40\n3,50\n"
LOG = "click,user_id,item_id\n1,1,7\n0,1.0,8\n1,2,7\n0,,9\n1,5,7\n"


def made(log, tables, output, **options):
    """Returns the joined rows and the counts."""
    result = join_tables([str(log)], Join.model_validate({"tables": tables, **options}), output)
    files = sorted(pathlib.Path(output).glob("log/*.parquet"))
    rows = [row for file in files for row in pa.parquet.read_table(file).to_pylist()]
    return rows, result


def written(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)


def test_a_log_is_joined_with_tables_of_several_formats(tmp_path):
    written(tmp_path, log=LOG, users=USERS)
    items = pa.table({"id": [7.0, 8.0, 9.0], "Age": [1.5, 2.0, None], "tags": [["a", "b"], [], None]})
    pa.parquet.write_table(items, tmp_path / "items.parquet")
    rows, result = made(
        tmp_path / "log.csv",
        [
            {"paths": [str(tmp_path / "users.csv")], "on": "user_id"},
            {"paths": [str(tmp_path / "*.parquet")], "on": {"item_id": "id"}},
        ],
        tmp_path / "out",
    )
    # 1.0 is 1 and 2.0 is 2 in keys; Age is another column than age; a missing key has no partner
    assert [tuple(row.values()) for row in rows] == [
        (b"1", b"1", b"7", b"30", b"1.5", b"a|b"),
        (b"0", b"1", b"8", b"30", b"2", None),
        (b"1", b"2", b"7", b"40", b"1.5", b"a|b"),
        (b"0", None, b"9", None, None, None),
        (b"1", b"5", b"7", None, b"1.5", b"a|b"),
    ]
    assert list(rows[0]) == ["click", "user_id", "item_id", "age", "Age", "tags"]
    assert result.columns == ("age", "Age", "tags") and result.rows == 5 and result.rejected == 0
    assert list(result.unmatched.values()) == [2, 0]
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["rows"] == 5
    assert not list((tmp_path / "out").glob(".join*"))


def test_what_a_killed_join_has_left_is_removed_by_the_next_one(tmp_path):
    """DuckDB's files may be as large as the log."""
    written(tmp_path, log=LOG, users=USERS)
    left = tmp_path / "out" / ".join"
    left.mkdir(parents=True)
    (left / "joined.duckdb").write_bytes(b"half a database")
    tables = [{"paths": [str(tmp_path / "users.csv")], "on": "user_id"}]
    rows, _ = made(tmp_path / "log.csv", tables, tmp_path / "out")
    assert len(rows) == 5 and not left.exists()


@pytest.mark.parametrize("memory", [1.0, 1e-9])
def test_the_newest_row_before_the_impression_is_taken(tmp_path, monkeypatch, memory):
    """The order of the log is kept, even if the tables exceed DuckDB's memory limit."""
    monkeypatch.setattr("ctrpipe.transforms.tables.join._MEMORY_SHARE", memory)
    monkeypatch.setattr("ctrpipe.transforms.tables.join._FEWEST_BYTES", 64 << 20)
    random = np.random.default_rng(0)
    log = pd.DataFrame({"n": np.arange(30_000), "u": random.integers(0, 300, 30_000)})
    log["at"] = random.integers(1_700_000_000, 1_700_100_000, len(log))
    states = pd.DataFrame(
        {"u": random.integers(0, 400, 5000), "at": random.integers(1_699_990_000, 1_700_100_000, 5000)}
    )
    states = states.drop_duplicates(["u", "at"])
    states["v"] = np.arange(len(states))
    log.loc[7, ["u", "at"]] = states.loc[states.index[3], ["u", "at"]].values  # a row of the very same time
    log.to_csv(tmp_path / "log.csv", index=False)
    states.to_parquet(tmp_path / "states.parquet", index=False)
    rows, result = made(
        tmp_path / "log.csv",
        [{"paths": [str(tmp_path / "states.parquet")], "on": "u", "time": "at"}],
        tmp_path / "out",
        as_of="at",
    )
    expected = pd.merge_asof(
        log.sort_values("at", kind="stable"), states.sort_values("at"), on="at", by="u", allow_exact_matches=False
    ).sort_values("n")
    assert [row["n"] for row in rows] == [str(n).encode() for n in range(30_000)]
    found = [None if row["v"] is None else int(row["v"]) for row in rows]
    assert found == [None if np.isnan(v) else int(v) for v in expected["v"]]
    assert list(result.unmatched.values()) == [int(expected["v"].isna().sum())]


@pytest.mark.parametrize(
    ("shown", "known", "is_told"),
    [
        ("2026-05-01 10:00:00", "2026-05-01T09:00:00+02:00", True),
        ("1777629600", "2026-05-01 09:00", True),
        ("2026-05-01T10:00:00Z", "1777620000", False),
        ("2026-05-01 10:00:00", "2026-05-01T09:00:00.5", False),
        ("2026-05-01 10:00:00", "2026-04-30", False),  # a date alone
    ],
)
def test_times_without_a_zone_beside_others_with_one_are_said(tmp_path, shown, known, is_told):
    written(tmp_path, log=f"click,user_id,at\n1,1,{shown}\n", users=f"user_id,since,age\n1,{known},30\n")
    table = {"paths": [str(tmp_path / "users.csv")], "on": "user_id", "time": "since"}
    _, result = made(tmp_path / "log.csv", [table], tmp_path / "out", as_of="at")
    told = [line for line in summary_of(result) if "times without a zone are read as UTC" in line]
    assert len(told) == is_told


@pytest.mark.slow  # 150,000 keys, as DuckDB needs 16 MiB for itself
@pytest.mark.parametrize("options", [{}, {"duplicates": "last"}, {"time": "at"}])
def test_a_table_larger_than_the_memory_goes_to_the_disk(tmp_path, monkeypatch, options):
    monkeypatch.setattr("ctrpipe.transforms.tables.join._MEMORY_SHARE", 0)
    monkeypatch.setattr("ctrpipe.transforms.tables.join._FEWEST_BYTES", 24 << 20)
    monkeypatch.setattr("ctrpipe.transforms.tables.join.cores", lambda: 1)
    keys = np.arange(150_000)
    table = pd.DataFrame({"u": keys, "text": [f"{key:064d}" for key in keys], "at": 1_700_000_000})
    table.to_parquet(tmp_path / "table.parquet", index=False)
    log = pd.DataFrame({"u": keys[::-50], "at": 1_700_000_001})
    log.to_parquet(tmp_path / "log.parquet", index=False)
    side = {"paths": [str(tmp_path / "table.parquet")], "on": "u", "keep": ["text"], **options}
    as_of = "at" if "time" in options else None
    rows, _ = made(tmp_path / "log.parquet", [side], tmp_path / "out", as_of=as_of)
    assert [row["text"] for row in rows] == [b"%064d" % key for key in keys[::-50]]


def test_two_tables_at_a_time_and_one_without(tmp_path):
    written(
        tmp_path,
        log="click,u,i,at\n1,a,x,2026-11-03\n0,b,x,2026-11-05\n",
        users="u,at,level\na,2026-11-01,1\na,2026-11-02,2\na,2026-11-03,3\nb,2026-11-06,9\n",
        items="i,since,price\nx,2026-11-04T00:00:00Z,5\nx,1762000000,4\n",
        shops="u,shop\na,s\n",
    )
    tables = [
        {"paths": [str(tmp_path / "users.csv")], "on": "u", "time": "at"},
        {"paths": [str(tmp_path / "items.csv")], "on": "i", "time": "since", "keep": ["price", "since"]},
        {"paths": [str(tmp_path / "shops.csv")], "on": "u"},
    ]
    rows, _ = made(tmp_path / "log.csv", tables, tmp_path / "out", as_of="at")
    assert [(row["level"], row["price"], row["since"], row["shop"]) for row in rows] == [
        (b"2", b"4", b"1762000000", b"s"),
        (None, b"5", b"2026-11-04T00:00:00Z", None),
    ]


def test_a_key_of_several_columns(tmp_path):
    written(tmp_path, log="click,u,d\n1,1,5\n0,1,6\n0,2,\n", days="d,u,v\n5.0,1,a\n6,1,b\n,2,c\n")
    tables = [{"paths": [str(tmp_path / "days.csv")], "on": ["u", "d"], "prefix": "day_"}]
    rows, _ = made(tmp_path / "log.csv", tables, tmp_path / "out")
    assert [row["day_v"] for row in rows] == [b"a", b"b", None]


@pytest.mark.parametrize(("rule", "age"), [("first", b"30"), ("last", b"31")])
def test_duplicates_of_a_key_are_refused_or_resolved_by_a_rule(tmp_path, rule, age):
    written(tmp_path, log=LOG, users="user_id,age\n1,30\n2,40\n", more="user_id,age\n1.0,31\n")
    table = {"paths": [str(tmp_path / "users.csv"), str(tmp_path / "more.csv")], "on": "user_id"}
    with pytest.raises(InputError, match=r"user_id 1 has 2 rows, as .*users\.csv line 2 and .*more\.csv line 2; leave"):
        made(tmp_path / "log.csv", [table], tmp_path / "out")
    assert not (tmp_path / "out" / "log").exists()
    rows, _ = made(tmp_path / "log.csv", [{**table, "duplicates": rule}], tmp_path / "out")
    assert [row["age"] for row in rows] == [age, age, b"40", None, None]


def test_duplicates_of_a_key_and_a_time(tmp_path):
    written(
        tmp_path, log="click,u,at\n1,a,1762000100\n", users="u,at,v\na,1762000000,1\na,1762000000.0,2\na,1761000000,3\n"
    )
    table = {"paths": [str(tmp_path / "users.csv")], "on": "u", "time": "at"}
    with pytest.raises(InputError, match="u a has 2 rows of the same time, as .* line 2 and .* line 3"):
        made(tmp_path / "log.csv", [table], tmp_path / "out", as_of="at")
    rows, _ = made(tmp_path / "log.csv", [{**table, "duplicates": "last"}], tmp_path / "out", as_of="at")
    assert rows[0]["v"] == b"2"


def test_malformed_rows_of_both_are_kept_with_their_lines(tmp_path):
    written(tmp_path, log=LOG + "1,2\n", users=USERS + "4,5,6\n")
    rows, result = made(
        tmp_path / "log.csv", [{"paths": [str(tmp_path / "users.csv")], "on": "user_id"}], tmp_path / "out"
    )
    letters = [json.loads(line) for line in (tmp_path / "out/dead_letter/rejects.jsonl").read_text().splitlines()]
    assert len(rows) == 5 and result.rejected == 2
    assert sorted((pathlib.Path(each["file"]).name, each["line"]) for each in letters) == [
        ("log.csv", 7),
        ("users.csv", 5),
    ]


def test_headerless_files_get_their_names(tmp_path):
    written(tmp_path, log="1::5::4\n2::5::1\n", users="1::F::x\n2::M::y\n")
    table = {"paths": [str(tmp_path / "users.csv")], "on": "user", "columns": ["user", "sex", "zip"], "keep": ["sex"]}
    rows, _ = made(tmp_path / "log.csv", [table], tmp_path / "out", columns=["user", "item", "rating"])
    assert [tuple(row.values()) for row in rows] == [(b"1", b"5", b"4", b"F"), (b"2", b"5", b"1", b"M")]


MISTAKES = [
    ({"on": "nobody"}, {}, r"log\.csv: on nobody: no such column; it has click, user_id, item_id"),
    ({"on": {"user_id": "id"}}, {}, r"users\.csv: on id: no such column; it has user_id, age"),
    ({"on": "user_id", "keep": ["sex"]}, {}, r"users\.csv: keep sex: no such column"),
    ({"on": "user_id", "time": "at"}, {"as_of": "item_id"}, r"users\.csv: time at: no such column"),
    ({"on": "user_id", "time": "age", "keep": ["age"]}, {"as_of": "at"}, r"log\.csv: as_of at: no such column"),
    (
        {"on": {"item_id": "user_id"}},
        {},
        r"users\.csv: no row of the log has its item_id in it, where the log begins with '7' and the table with '1'; "
        r"is it the log's table, and are the keys written alike\?",
    ),
    (
        {"on": "user_id", "paths": ["log.csv"], "duplicates": "last"},
        {},
        r"log\.csv: click, item_id would be in the joined",
    ),
    ({"on": "user_id", "paths": ["none.csv"]}, {}, r"none\.csv: no such file"),
    ({"on": "user_id", "columns": ["a", "b"]}, {}, "columns: the files name theirs"),
]


@pytest.mark.parametrize(("table", "options", "message"), MISTAKES)
def test_a_mistake_is_one_line_and_leaves_no_log(tmp_path, monkeypatch, table, options, message):
    monkeypatch.chdir(tmp_path)
    written(tmp_path, log=LOG, users=USERS)
    with pytest.raises(InputError, match=message) as error:
        made("log.csv", [{"paths": ["users.csv"], **table}], tmp_path / "out", **options)
    assert "\n" not in str(error.value) and not (tmp_path / "out" / "log").exists()


@pytest.mark.parametrize(
    ("join", "message"),
    [
        ({"tables": [{"paths": ["u"], "on": "a", "time": "t"}]}, "a table has the time t; name the log's column"),
        ({"tables": [{"paths": ["u"], "on": "a"}], "as_of": "t"}, "as_of needs the column of times of a table"),
        ({"tables": [{"paths": ["u"], "on": "t", "time": "t"}], "as_of": "t"}, "on and time are both t"),
        ({"tables": [{"paths": ["u"], "on": "a", "time": "t", "time_format": "x"}], "as_of": "t"}, "time_format"),
        ({"tables": []}, "at least 1 item"),
    ],
)
def test_settings_that_contradict_each_other(join, message):
    with pytest.raises(ValueError, match=message):
        Join.model_validate(join)


def test_the_command_joins_as_the_issue_of_its_users_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(pathlib.Path(sys.executable).parent))
    written(tmp_path, log=LOG, users=USERS, items="item_id,price\n7,1\n8,2\n9,3\n")
    call = ["prepare", "join", "log.csv", "users.csv", "items.csv", "--on", "user_id", "--on", "item_id"]
    done = CliRunner().invoke(main, call)
    assert done.exit_code == 0 and done.output == (
        "5 rows with age, price\n2 of them have no partner in users.csv\n0 of them have no partner in items.csv\n"
        "0 malformed rows in joined/dead_letter/rejects.jsonl\nNext:\n  ctrpipe init 'joined/log/*.parquet'\n"
    )
    done = CliRunner().invoke(main, [*call, "--on", "click"])
    assert done.exit_code == 2 and "--on: 3 of them for 2 tables; give one per table in their order" in done.output
    done = CliRunner().invoke(main, [*call, "--prefix", "u_", "--prefix", "-", "--output", "named"])
    assert done.output.startswith("5 rows with u_age, price")


# In a configuration --------------------------------------------------------------------------------------------------


def configured(tmp_path, **join):
    table = {"paths": [str(tmp_path / "users.csv")], "on": "user_id", **join}
    data = {"format": "parquet", "labels": {"ctr": "click"}, "join": {"tables": [table]}, "split": {"by": "order"}}
    features = [{"kind": "numeric", "columns": ["age"]}, {"kind": "categorical", "columns": ["user_id", "item_id"]}]
    return check_config(with_changes(SMALL, {"data": data, "features": features}), (), "small")


@pytest.fixture(name="joinable")
def _joinable(tmp_path):
    lines = [f"{n % 2},{n % 7},{n % 3}\n" for n in range(100)]
    written(
        tmp_path,
        log="click,user_id,item_id\n" + "".join(lines),
        users="user_id,age\n" + "".join(f"{n}.0,{n}\n" for n in range(6)),
    )
    return tmp_path


def test_a_run_reads_the_joined_log(joinable, capsys):
    config = configured(joinable)
    [log] = joined([str(joinable / "log.csv")], config, joinable / "run")
    table = pa.parquet.read_table(joinable / "run" / "joined" / "log")
    assert log == str(joinable / "run" / "joined" / "log" / "*.parquet") and table.num_rows == 100
    ages = [None if n % 7 == 6 else str(n % 7).encode() for n in range(100)]
    assert table["age"].to_pylist() == ages
    assert "14 of them have no partner in" in capsys.readouterr().err
    assert not check_log(
        config.model_copy(update={"data": config.data.model_copy(update={"join": None})}), [log]
    ).errors


def test_a_check_joins_the_first_rows(joinable):
    found = check_log(configured(joinable), [str(joinable / "log.csv")])
    assert found.rows == 100 and not found.errors
    assert any("data.join: 14 of the first 100 rows have no partner in" in note for note in found.notes)
    [error] = check_log(configured(joinable, on="item_id"), [str(joinable / "log.csv")]).errors
    assert "on item_id: no such column" in error
    (joinable / "users.csv").write_text("user_id,age\n1,x\n2,y\n")
    found = check_log(configured(joinable), [str(joinable / "log.csv")])
    assert any("is not a number" in error for error in found.errors)


def test_a_replay_is_told_to_join_before(joinable):
    with pytest.raises(
        InputError,
        match="data.join: a replay reads each day's log unprepared; prepare the days with `ctrpipe prepare",
    ):
        ReplayPlan(configured(joinable), (), 1, ())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "csv", "header": True}, "join: a run writes Parquet and reads it; write format: parquet, not csv"),
        (
            {"split": {"by": "files", "files": {"train": ["a"], "validation": ["b"], "test": ["c"]}}},
            "join reads the files of paths and cannot be combined with split",
        ),
    ],
)
def test_what_cannot_be_combined_with_a_join(joinable, changes, message):
    table = {"paths": [str(joinable / "users.csv")], "on": "user_id"}
    data = {"format": "parquet", "labels": {"ctr": "click"}, "join": {"tables": [table]}, **changes}
    with pytest.raises(InputError, match=message):
        check_config(with_changes(SMALL, {"data": data}), (), "small")


def test_a_log_that_is_not_joined_is_said_as_such(tmp_path):
    written(tmp_path, log=LOG, users=USERS)
    data = {"format": "parquet", "join": {"tables": [{"paths": ["users.csv"], "on": "user_id"}]}}
    features = [{"columns": ["user_id", "age"], "kind": "categorical"}]
    config = check_config(with_changes(SMALL, {"data": data, "features": features}), (), "small")
    with pytest.raises(InputError, match="log.csv: not the joined log that data.join makes; make the same join by"):
        LogReader(config.log_spec).check_columns(str(tmp_path / "log.csv"))
    pa.parquet.write_table(pa.table({"click": [1, 0], "user_id": [1, 2]}), tmp_path / "log.parquet")
    with pytest.raises(InputError, match="the header lacks age, .*; not the joined log that data.join makes; make the"):
        LogReader(config.log_spec).check_columns(str(tmp_path / "log.parquet"))
