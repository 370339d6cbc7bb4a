import csv
import gzip
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from transforms import lines
from transforms.errors import InputError
from transforms.readers import LogReader, find_files
from transforms.spec import LogSpec

GOOD = b"1\t5\ta\n0\t-2\t\n1\t\tb\n"


def spec(**data) -> LogSpec:
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    return LogSpec.model_validate(
        {"data": {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}, **data}, "features": features}
    )


def read(path, log=None, labels=True):
    """Rows as tuples with their lines, and the rejects."""
    rows, rejects = [], []
    for batch in LogReader(log or spec(), labels).read(str(path)):
        names = batch.rows.schema.names
        for line, row in zip(batch.lines.tolist(), batch.rows.to_pylist(), strict=True):
            rows.append((line, *(row[name] for name in names)))
        rejects += batch.rejects
    return rows, rejects


def write(tmp_path, content, name="log.tsv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


ROWS = [(0, 5.0, b"a", 1.0), (1, -2.0, None, 0.0), (2, None, b"b", 1.0)]


@pytest.mark.parametrize("name", ["log.tsv", "log.tsv.gz"])
@pytest.mark.parametrize("content", [GOOD, GOOD.replace(b"\n", b"\r\n"), GOOD[:-1]])
def test_rows_arrive_whatever_the_line_ends_and_the_compression(tmp_path, name, content):
    assert read(write(tmp_path, content, name)) == (ROWS, [])


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
def test_the_size_of_a_range_changes_nothing(tmp_path, monkeypatch, size):
    content = GOOD * 3 + b"broken\n" + GOOD
    whole = read(write(tmp_path, content))
    monkeypatch.setattr(lines, "CHUNK_BYTES", size)
    assert read(write(tmp_path, content)) == whole
    assert [reject.line for reject in whole[1]] == [9]
    assert [row[0] for row in whole[0]] == [*range(9), 10, 11, 12]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1\t5", "expected 3 columns, found 2"),
        (b"1\t5\ta\tb", "expected 3 columns, found 4"),
        (b"1\tfive\ta", "n: 'five' is not a number"),
        (b"2\t5\ta", "label: the label must be 0 or 1, found '2'"),
        (b"\t5\ta", "label: the label must be 0 or 1, found nothing"),
        (b"1\t5\t\xff\xfe", "c: invalid UTF-8"),
        (b"", "the line is empty"),
        (b"1\t5\ta\rb", "a carriage return inside the row"),
        (b"1\t\xff", "expected 3 columns, found 2"),
        (b"1\t\xff\ta", "n: '\ufffd' is not a number"),
        (b"1\tnan\ta", "n: 'nan' is not a number"),
        (b"1\tinf\ta", "n: 'inf' is not a number"),
        (b"1\t0x10\ta", "n: '0x10' is not a number"),
        (b"1\t 5\ta", "n: ' 5' is not a number"),
        (b"1\t1e39\ta", "n: '1e39' is too large for a 32-bit float"),
        (b"1\t1e400\ta", "n: '1e400' is too large for a 32-bit float"),
    ],
)
def test_a_malformed_row_is_kept_with_its_line_and_reason(tmp_path, line, reason):
    rows, rejects = read(write(tmp_path, GOOD + line + b"\n" + GOOD))
    assert [(reject.line, reject.reason) for reject in rejects] == [(3, reason)]
    assert rows == ROWS + [(number + 4, *values) for number, *values in ROWS]


@pytest.mark.parametrize(
    ("lines", "reasons"),
    [
        (b'1,5,"a\n', ["a quote is not closed"]),
        (b'1,5,"a\nb"\n', ["a quote is not closed", "expected 3 columns, found 1"]),  # a value over two lines
        (b'1,"5,a\n', ["a quote is not closed"]),
        (b'1,5,"a,b"\n', []),
        (b'1,5,"a""b"\n1,5,a"b\n', []),
    ],
)
def test_a_broken_quote_costs_its_own_line_only(tmp_path, lines, reasons):
    good = GOOD.replace(b"\t", b",")
    count = lines.count(b"\n")
    rows, rejects = read(write(tmp_path, good + lines + good), spec(format="csv"))
    assert [(reject.line, reject.reason) for reject in rejects] == list(enumerate(reasons, 3))
    assert rows[:3] == ROWS and [row[0] for row in rows[-3:]] == [3 + count, 4 + count, 5 + count]
    assert len(rows) == 6 + count - len(reasons)


def test_quotes_of_csv_are_those_of_a_csv_reader(tmp_path):
    values = ['a"b', "a,b", '""', "plain", "é"]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[1, 5, value] for value in values])
    rows, rejects = read(write(tmp_path, text.getvalue().encode()), spec(format="csv"))
    assert [row[2].decode() for row in rows] == values and not rejects


@pytest.mark.parametrize("content", [b"\n", b"\r\n\r\n", b"1\t5\ta\r0\t2\tb\r", bytes(range(256)) * 9])
def test_a_file_without_a_good_row_is_rejected_line_by_line(tmp_path, content):
    rows, rejects = read(write(tmp_path, content))
    assert not rows
    assert [reject.line for reject in rejects] == list(range(len(content.rstrip(b"\n").split(b"\n"))))


@pytest.mark.parametrize(("file_format", "delimiter"), [("tsv", b"\t"), ("csv", b",")])
def test_every_line_is_a_row_or_a_reject(tmp_path, monkeypatch, file_format, delimiter):
    random = np.random.default_rng(0)
    good = b"1\t5\ta".replace(b"\t", delimiter)
    pieces = [b"1", b"5", b"a", delimiter, delimiter, b"\n", b"\r", b"\r\n", b'"', b"\xff", b"\0", good + b"\n"]
    for size in (40, 1 << 20):
        monkeypatch.setattr(lines, "CHUNK_BYTES", size)
        for _ in range(200):
            content = b"".join(pieces[index] for index in random.integers(0, len(pieces), 30)) + good
            rows, rejects = read(write(tmp_path, content), spec(format=file_format))
            seen = sorted([row[0] for row in rows] + [reject.line for reject in rejects])
            assert seen == list(range(content.count(b"\n") + 1)), content


def test_header_decides_the_order_of_columns(tmp_path):
    path = write(tmp_path, b'c,extra,label,n\n"a,b",x,1,2.5\n', "log.csv")
    assert read(path, spec(format="csv", header=True)) == ([(1, 2.5, b"a,b", 1.0)], [])


def test_a_header_that_lacks_a_column_is_refused(tmp_path):
    path = write(tmp_path, b"c,label\na,1\n", "log.csv")
    with pytest.raises(InputError, match="the header lacks n"):
        read(path, spec(format="csv", header=True))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"c,label,n,n\na,1,2,3\n", "the header names n twice"),
        (b'"c,label,n\na,1,2\n', "the header cannot be read"),
        (b"\nc,label,n\na,1,2\n", "the header lacks n, c, label"),
        (b"c,label,n\n", "no rows"),
    ],
)
def test_a_bad_header_is_refused(tmp_path, content, message):
    with pytest.raises(InputError, match=message) as error:
        read(write(tmp_path, content, "log.csv"), spec(format="csv", header=True))
    assert "\n" not in str(error.value)


def test_parquet_values_are_those_of_text(tmp_path):
    table = pa.table({"label": pa.array([True, False]), "n": pa.array([5, None]), "c": pa.array(["", "é"])})
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    rows, rejects = read(tmp_path / "log.parquet", spec(format="parquet", columns=[]))
    assert rows == [(0, 5.0, None, 1.0), (1, None, "é".encode(), 0.0)] and not rejects


def test_nan_in_parquet_is_a_missing_number_and_a_bad_value_a_reject(tmp_path):
    numbers = pa.array([1.5, float("nan"), float("inf"), 2.0])
    table = pa.table({"label": pa.array([1.0, 0.0, 1.0, 2.0]), "n": numbers, "c": pa.array(["a", "b", "c", "d"])})
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    rows, rejects = read(tmp_path / "log.parquet", spec(format="parquet", columns=[]))
    assert rows == [(0, 1.5, b"a", 1.0), (1, None, b"b", 0.0)]
    reasons = [(2, "n: 'inf' is not a number"), (3, "label: the label must be 0 or 1, found '2'")]
    assert [(reject.line, reject.reason) for reject in rejects] == reasons


def test_parquet_files_that_cannot_be_read_are_refused(tmp_path):
    log, path = spec(format="parquet", columns=[]), tmp_path / "log.parquet"
    table = pa.table({"label": [0, 1] * 500, "n": list(range(1000)), "c": [str(row) for row in range(1000)]})
    pa.parquet.write_table(table, path)
    whole = path.read_bytes()
    for content, message in (
        (GOOD, "not a readable Parquet file"),
        (whole[:-50], "not a readable Parquet file"),
        (whole[:10] + bytes(200) + whole[210:], "the Parquet file is damaged"),
    ):
        path.write_bytes(content)
        with pytest.raises(InputError, match=message) as error:
            read(path, log)
        assert "\n" not in str(error.value)
    for changes, message in (
        ({"c": pa.array([["a"]] * 1000)}, r"column c of type list<.*> cannot be read"),
        ({"n": None}, "the header lacks n"),
    ):
        columns = {name: changes.get(name, table[name]) for name in table.column_names}
        kept = {name: values for name, values in columns.items() if values is not None}
        pa.parquet.write_table(pa.table(kept), path)
        with pytest.raises(InputError, match=message):
            read(path, log)


def test_a_log_without_labels_can_be_scored(tmp_path):
    unlabelled = b"".join(line.split(b"\t", 1)[1] for line in GOOD.splitlines(True))
    expected = [row[:3] for row in ROWS]
    assert read(write(tmp_path, unlabelled), labels=False) == (expected, [])
    assert read(write(tmp_path, GOOD), labels=False) == (expected, [])


def test_a_malformed_first_line_does_not_hide_that_labels_are_absent(tmp_path):
    unlabelled = b"bad\n" + b"".join(line.split(b"\t", 1)[1] for line in GOOD.splitlines(True)) + b"\n"
    rows, rejects = read(write(tmp_path, unlabelled), labels=False)
    assert rows == [(row[0] + 1, *row[1:3]) for row in ROWS]
    assert [(r.line, r.reason) for r in rejects] == [(0, "expected 2 columns, found 1"), (4, "the line is empty")]


@pytest.mark.parametrize("name", ["empty.tsv", "empty.tsv.gz"])
def test_an_empty_file_is_refused(tmp_path, name):
    with pytest.raises(InputError, match="no rows"):
        read(write(tmp_path, b"", name))


def test_a_gzip_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "log.tsv.gz"
    random = np.random.default_rng(0).integers(0, 10**9, 3000)
    path.write_bytes(gzip.compress(b"".join(b"1\t%d\ta\n" % value for value in random))[:-200])
    with pytest.raises(InputError, match="cut short"):
        read(path)
    path.write_bytes(GOOD)
    with pytest.raises(InputError, match="not a valid gzip"):
        read(path)


def test_missing_files_and_empty_globs_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        find_files([str(tmp_path / "absent.tsv")])
    with pytest.raises(InputError, match="no file matches"):
        find_files([str(tmp_path / "*.tsv")])
    with pytest.raises(InputError, match="No data"):
        find_files([])
    with pytest.raises(InputError, match="a folder; name its files"):
        find_files([str(tmp_path)])


def test_globs_give_files_in_name_order_and_a_name_may_look_like_a_glob(tmp_path):
    for name in ("b.tsv", "a.tsv", "c[1].tsv"):
        write(tmp_path, GOOD, name)
    (tmp_path / "folder.tsv").mkdir()
    assert [path.rsplit("/")[-1] for path in find_files([f"{tmp_path}/*.tsv"])] == ["a.tsv", "b.tsv", "c[1].tsv"]
    assert find_files([f"{tmp_path}/c[1].tsv", f"{tmp_path}/[b].tsv"]) == [f"{tmp_path}/c[1].tsv", f"{tmp_path}/b.tsv"]


def test_the_real_log_has_60000_good_rows(real_data):
    features = [{"kind": "numeric", "columns": ["I1..I13"]}, {"kind": "categorical", "columns": ["C1..C26"]}]
    data = {"columns": ["label", "I1..I13", "C1..C26"], "labels": {"ctr": "label"}}
    log = LogSpec.model_validate({"data": data, "features": features})
    batches = list(LogReader(log).read(str(real_data / "criteo_60k.tsv.gz")))
    assert sum(batch.rows.num_rows for batch in batches) == 60_000
    assert not any(batch.rejects for batch in batches)
