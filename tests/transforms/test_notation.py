"""Backslash escapes and blanks around values of delimited text."""

import csv
import io

import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.sample import read_sample
from ctrpipe.transforms.log.spec import LogSpec

FEATURES = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]


def spec(**data) -> LogSpec:
    return LogSpec.model_validate({"data": {"labels": {"ctr": "y"}, **data}, "features": FEATURES})


def read(path, log):
    rows, rejects = [], []
    for part in plan([str(path)], log):
        for batch in LogReader(log).read_range(part):
            values = batch.rows.select(["y", "n", "c"]).to_pylist()
            rows += [(line, *row.values()) for line, row in zip(batch.lines.tolist(), values, strict=True)]
            rejects += [(reject.line, reject.reason, reject.text) for reject in batch.rejects]
    return rows, rejects


VALUES = ['say "hi"', "a,b", "end\\", "C:\\new", 'x","y', '"', "\\", "plain", "\\\\,", "é"]


def spark(values):
    """Returns CSV as Spark writes it: quoted, with a backslash before quotes and backslashes."""
    quoted = (value.replace("\\", "\\\\").replace('"', '\\"') for value in values)
    return "y,n,c\n" + "".join(f'1,{n},"{value}"\n' for n, value in enumerate(quoted))


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("size", [1, 1 << 20])
def test_backslashes_before_quotes_delimiters_and_backslashes(tmp_path, monkeypatch, breaks, size):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", size)
    (tmp_path / "log.csv").write_text(spark(VALUES))
    log = spec(format="csv", header=True, escape="\\", quoted_line_breaks=breaks)
    rows, rejects = read(tmp_path / "log.csv", log)
    assert not rejects and rows == [(n + 2, 1.0, float(n), value.encode()) for n, value in enumerate(VALUES)]
    assert [value.encode() for value in next(zip(*csv_values(tmp_path), strict=True))] == [row[3] for row in rows]


def csv_values(folder):
    reader = csv.reader(io.StringIO((folder / "log.csv").read_text()), doublequote=False, escapechar="\\")
    return [(row[2],) for row in list(reader)[1:]]


def test_unquoted_delimiters_with_a_backslash_are_values(tmp_path):
    (tmp_path / "log.csv").write_text("c::d,n,y\na\\,b,1,1\n\\N,\\N,0\nx,\\,,1\na,b,2,1\n")
    log = spec(format="csv", columns=["c", "n", "y"], escape="\\")
    rows, rejects = read(
        tmp_path / "log.csv", spec(format="csv", columns=["c", "n", "y"], escape="\\", max_bad_row_rate=1)
    )
    assert rows == [(2, 1.0, 1.0, b"a,b"), (3, 0.0, None, None)]
    assert rejects[1:] == [
        (4, "n: ',' is not a number", "x,\\,,1"),
        (5, "expected 3 columns, found 4", "a,b,2,1"),
    ]
    (tmp_path / "log.csv").write_text("c::d::e::y\n")
    log = spec(format="csv", delimiter="::", columns=["c", "n", "y"], escape="\\")
    (tmp_path / "two.csv").write_text("a\\::b::1::1\n")
    assert read(tmp_path / "two.csv", log)[0] == [(1, 1.0, 1.0, b"a::b")]


def test_tabs_line_breaks_and_nulls_as_mysql_and_postgresql_write_them(tmp_path):
    lines = [r"a\tb", r"a\nb", r"a\\nb", "\\N", r"\\N", "C:\\dir", "a\\\tb", r"\\", ""]
    values = [b"a\tb", b"a\nb", b"a\\nb", None, b"\\N", b"C:\\dir", b"a\tb", b"\\", None]
    (tmp_path / "log.tsv").write_text("".join(f"1\t{n}\t{line}\n" for n, line in enumerate(lines)))
    rows, rejects = read(tmp_path / "log.tsv", spec(columns=["y", "n", "c"], escape="\\"))
    assert not rejects and [row[3] for row in rows] == values
    literal, _ = read(tmp_path / "log.tsv", spec(columns=["y", "n", "c"], max_bad_row_rate=1))
    assert literal[1][3] == rb"a\nb"  # without the key a backslash is a sign


def test_a_text_with_a_placeholder_is_refused_and_not_changed(tmp_path):
    (tmp_path / "log.csv").write_text('1,2,"\\"\ufdd0"\n')
    with pytest.raises(InputError, match="data.escape: the text has U\\+FDD0"):
        read(tmp_path / "log.csv", spec(format="csv", columns=["y", "n", "c"], escape="\\"))


def test_blanks_around_values_are_no_part_of_them(tmp_path):
    text = 'y, n , c\n1, 2.5, Bad Homburg \n  0 ,7 ,  "a, ""b"" " \r\n1, , \n0, 3, "hello, "\n1, 4, x, z\n'
    (tmp_path / "log.csv").write_text(text, newline="")
    rows, rejects = read(tmp_path / "log.csv", spec(format="csv", header=True, trim_spaces=True, max_bad_row_rate=1))
    assert rows == [
        (2, 1.0, 2.5, b"Bad Homburg"),
        (3, 0.0, 7.0, b'a, "b" '),
        (4, 1.0, None, None),
        (5, 0.0, 3.0, b"hello, "),
    ]
    assert rejects == [(6, "expected 3 columns, found 4", "1,4,x,z")]


def test_runs_of_blanks_are_one_delimiter_where_the_delimiter_is_a_blank(tmp_path):
    (tmp_path / "log.txt").write_text('1   2.5    a\n 0 7 "b c"\n')
    log = spec(format="csv", delimiter=" ", columns=["y", "n", "c"], trim_spaces=True)
    assert read(tmp_path / "log.txt", log) == ([(1, 1.0, 2.5, b"a"), (2, 0.0, 7.0, b"b c")], [])


@pytest.mark.parametrize(("key", "value"), [("escape", "\\"), ("trim_spaces", True)])
def test_the_keys_are_of_tables_alone(key, value):
    with pytest.raises(ValueError, match=f"{key} applies to csv and tsv, not to jsonl; remove it"):
        spec(format="jsonl", **{key: value})


def test_a_first_look_finds_escapes_and_blanks(tmp_path):
    (tmp_path / "log.csv").write_text(spark([f'a "{n}", {value}' for n in range(5) for value in VALUES]))
    sample = read_sample(str(tmp_path / "log.csv"))
    assert sample.data == {"format": "csv", "escape": "\\", "header": True}
    assert sample.columns["c"][2] == 'a "0", end\\' and any("escapes" in note for note in sample.unsure)
    (tmp_path / "blanks.csv").write_text("y, n, c\n" + "".join(f'{n % 2}, {n}, "a, b{n}"\n' for n in range(30)))
    sample = read_sample(str(tmp_path / "blanks.csv"))
    assert sample.data == {"format": "csv", "trim_spaces": True, "header": True}
    assert sample.columns["c"][3] == "a, b3"
    (tmp_path / "dump.tsv").write_text("".join(f"{n % 2}\t{n}\t\\N\n{n % 2}\t{n}\ta\\tb\n" for n in range(30)))
    sample = read_sample(str(tmp_path / "dump.tsv"))
    assert sample.data["escape"] == "\\" and sample.columns["c3"][:2] == ["", "a\tb"]


def test_a_quoted_backslash_at_the_end_is_no_escape_for_a_first_look(tmp_path):
    (tmp_path / "log.csv").write_text('y,n,c\n1,2,"C:\\dir\\"\n0,3,"D:\\"\n')
    sample = read_sample(str(tmp_path / "log.csv"))
    assert "escape" not in sample.data and sample.columns["c"] == ["C:\\dir\\", "D:\\"]


@pytest.mark.parametrize("delimiter", [",", "\t", "::"])
def test_a_first_look_finds_escaped_delimiters(tmp_path, delimiter):
    rows = [["n", "c", "y"], *([str(n), f"a\\{delimiter}b{n}" if n % 3 else f"c{n}", str(n % 2)] for n in range(30))]
    path = tmp_path / "log.txt"
    path.write_text("".join(delimiter.join(row) + "\n" for row in rows))
    sample = read_sample(str(path))
    assert sample.data["escape"] == "\\" and sample.data["header"] is True
    assert list(sample.columns) == ["n", "c", "y"] and sample.columns["c"][:2] == ["c0", f"a{delimiter}b1"]


def test_a_backslash_before_a_delimiter_may_end_a_value(tmp_path):
    (tmp_path / "log.csv").write_text("c,y\n" + "".join(f"D:\\dir{n}\\,{n % 2}\n" for n in range(30)))
    sample = read_sample(str(tmp_path / "log.csv"))
    assert "escape" not in sample.data and sample.columns["c"][0] == "D:\\dir0\\"
