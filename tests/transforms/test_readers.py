import gzip

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from transforms import readers
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
    monkeypatch.setattr(readers, "RANGE_BYTES", size)
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
        (b"", "label: the label must be 0 or 1, found nothing"),
    ],
)
def test_a_malformed_row_is_kept_with_its_line_and_reason(tmp_path, line, reason):
    rows, rejects = read(write(tmp_path, GOOD + line + b"\n" + GOOD))
    assert [(reject.line, reject.reason) for reject in rejects] == [(3, reason)]
    assert [row[0] for row in rows] == [0, 1, 2, 4, 5, 6]


def test_header_decides_the_order_of_columns(tmp_path):
    path = write(tmp_path, b'c,extra,label,n\n"a,b",x,1,2.5\n', "log.csv")
    assert read(path, spec(format="csv", header=True)) == ([(1, 2.5, b"a,b", 1.0)], [])


def test_a_header_that_lacks_a_column_is_refused(tmp_path):
    path = write(tmp_path, b"c,label\na,1\n", "log.csv")
    with pytest.raises(InputError, match="the header lacks n"):
        read(path, spec(format="csv", header=True))


def test_parquet_values_are_those_of_text(tmp_path):
    table = pa.table({"label": pa.array([True, False]), "n": pa.array([5, None]), "c": pa.array(["", "é"])})
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    rows, rejects = read(tmp_path / "log.parquet", spec(format="parquet", columns=[]))
    assert rows == [(0, 5.0, None, 1.0), (1, None, "é".encode(), 0.0)] and not rejects


def test_a_log_without_labels_can_be_scored(tmp_path):
    unlabelled = b"".join(line.split(b"\t", 1)[1] for line in GOOD.splitlines(True))
    expected = [row[:3] for row in ROWS]
    assert read(write(tmp_path, unlabelled), labels=False) == (expected, [])
    assert read(write(tmp_path, GOOD), labels=False) == (expected, [])


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


def test_the_real_log_has_60000_good_rows(real_data):
    features = [{"kind": "numeric", "columns": ["I1..I13"]}, {"kind": "categorical", "columns": ["C1..C26"]}]
    data = {"columns": ["label", "I1..I13", "C1..C26"], "labels": {"ctr": "label"}}
    log = LogSpec.model_validate({"data": data, "features": features})
    batches = list(LogReader(log).read(str(real_data / "criteo_60k.tsv.gz")))
    assert sum(batch.rows.num_rows for batch in batches) == 60_000
    assert not any(batch.rejects for batch in batches)
