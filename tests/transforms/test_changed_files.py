"""A log that changes while it is read is refused, whoever reads it and whatever has changed."""

import gzip
import os
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log import lines
from ctrpipe.transforms.log.described_files import describe_file, read_states, same_contents, states_of, write_states
from ctrpipe.transforms.log.formats import parquet
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

ROWS = [f"{row % 3 == 0:d}\t{row}\tv{row % 7}".encode() for row in range(600)]
CHANGES = ("cut", "grown", "edited", "replaced")
PLACES = {"here": Workers(processes=1), "two processes": Workers(processes=2)}


def spec(**data) -> LogSpec:
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    data = {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}, **data}
    return LogSpec.model_validate({"data": data, "features": features})


def as_text(rows: list[bytes]) -> bytes:
    return b"\n".join(rows) + b"\n"


def as_parquet(rows: list[bytes]) -> bytes:
    values = [row.decode().split("\t") for row in rows]
    columns = {"label": [int(row[0]) for row in values], "n": [float(row[1]) for row in values]}
    buffer = pa.BufferOutputStream()
    # A column that nothing reads lies between those that are read.
    table = pa.table({**columns, "unread": np.arange(len(rows)) ** 2, "c": [row[2] for row in values]})
    pa.parquet.write_table(table, buffer, row_group_size=100)
    return buffer.getvalue().to_pybytes()


# By name: the description, the file's name, how rows become its bytes.
KINDS = {
    "text": (spec(), "log.tsv", as_text),
    "header": (spec(header=True), "log.tsv", lambda rows: b"label\tn\tc\n" + as_text(rows)),
    "no last line end": (spec(), "log.tsv", lambda rows: as_text(rows)[:-1]),
    "gzip": (spec(), "log.tsv.gz", lambda rows: gzip.compress(as_text(rows), mtime=0)),
    "two gzip members": (
        spec(header=True),
        "log.tsv.gz",
        lambda rows: gzip.compress(b"label\tn\tc\n") + gzip.compress(as_text(rows)) + bytes(50),
    ),
    "parquet": (spec(format="parquet", columns=[]), "log.parquet", as_parquet),
}


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 1000)


def ingested(folder, paths, log, workers, states):
    folders = {name: folder / name for name in SPLITS}
    for split in folders.values():
        split.mkdir(exist_ok=True, parents=True)
    return ingest(log, [str(path) for path in paths], 1, folders, folder / "dead", workers, states=states)


def change(path: pathlib.Path, how: str, encoded) -> None:
    """Writes other rows to a file."""
    rows = {
        "cut": ROWS[: len(ROWS) // 2],
        "grown": [*ROWS, ROWS[0]],
        "edited": [*ROWS[:-3], ROWS[-3].replace(b"v", b"w"), *ROWS[-2:]],  # text of the same size
        "replaced": ROWS[::-1],
    }[how]
    if how == "replaced":
        path.with_suffix(".new").write_bytes(encoded(rows))
        os.replace(path.with_suffix(".new"), path)
    else:
        path.write_bytes(encoded(rows))
    later = path.stat().st_mtime_ns + 1  # a clock may not have moved on since the file was written first
    os.utime(path, ns=(later, later))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "how", "place"),
    [
        *((kind, how, "here") for kind in KINDS for how in CHANGES),
        ("text", "cut", "two processes"),
        pytest.param("gzip", "grown", "two processes", marks=pytest.mark.large),
        pytest.param("parquet", "edited", "two processes", marks=pytest.mark.large),
    ],
)
def test_a_file_that_is_another_than_before_is_refused(tmp_path, kind, how, place):
    log, name, encoded = KINDS[kind]
    first, second = tmp_path / f"1{name}", tmp_path / f"2{name}"
    for path in (first, second):
        path.write_bytes(encoded(ROWS))
    before = states_of([describe_file(str(path)) for path in (first, second)])
    change(second, how, encoded)
    with pytest.raises(InputError, match=f"2{name}: the file changed while it was read; stop the program that writes"):
        ingested(tmp_path / "out", [first, second], log, PLACES[place], before)
    assert not [*(tmp_path / "out").rglob("*.parquet")]
    second.write_bytes(encoded(ROWS))
    now = states_of([describe_file(str(path)) for path in (first, second)])
    assert sum(ingested(tmp_path / "out", [first, second], log, PLACES[place], now).rows.values()) == 1200


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_changes_while_a_range_is_read_is_refused(tmp_path, monkeypatch, kind, how):
    """Whoever reads the range: an ingestion, a scoring, a drift."""
    monkeypatch.setattr(lines, "CHUNK_BYTES", 100)
    monkeypatch.setattr(parquet, "BATCH_ROWS", 10)
    log, name, encoded = KINDS[kind]
    path = tmp_path / name
    path.write_bytes(encoded(ROWS))
    batches = LogReader(log).read_range(plan([str(path)], log)[-1])
    assert len(next(batches).lines) < 600
    change(path, how, encoded)
    with pytest.raises(InputError, match=f"{name}: the file changed while it was read; stop the program that writes"):
        list(batches)


@pytest.mark.parametrize("reading", [lambda path, log: LogReader(log).read(path), lambda path, log: iter([])])
def test_a_file_that_is_only_read_or_touched_before_is_read(tmp_path, reading):
    log, name, encoded = KINDS["header"]
    path = tmp_path / name
    path.write_bytes(encoded(ROWS))
    list(reading(str(path), log))
    os.utime(path, ns=(1, 1))
    os.chmod(path, 0o440)
    os.link(path, tmp_path / "link")
    assert sum(len(batch.lines) for batch in LogReader(log).read(str(path))) == 600


def test_a_file_that_is_removed_while_it_is_read_is_one_line(tmp_path):
    log, name, encoded = KINDS["text"]
    path = tmp_path / name
    path.write_bytes(encoded(ROWS))
    first = plan([str(path)], log)[0]
    path.unlink()
    with pytest.raises(InputError, match=f"{name}: cannot be read \\(No such file or directory\\)"):
        list(LogReader(log).read_range(first))


def test_states_go_through_a_file(tmp_path):
    (tmp_path / "a").write_bytes(b"12345")
    os.utime(tmp_path / "a", ns=(5, 1_700_000_000_123_456_789))
    found = states_of([describe_file(str(tmp_path / "a"))])
    assert found == {str(tmp_path / "a"): (5, "1700000000123456789")}
    write_states(tmp_path / "states.json", found)
    assert read_states(tmp_path / "states.json") == found


@pytest.mark.parametrize("kind", ["header", "two gzip members", "parquet"])
def test_a_file_with_other_columns_than_in_the_plan_is_refused(tmp_path, kind):
    """A header with two columns in another order, or another footer: the rows would be read as others."""
    log, name, encoded = KINDS[kind]
    path = tmp_path / name
    path.write_bytes(encoded(ROWS))
    first = plan([str(path)], log)[0]
    if kind == "parquet":
        table = pa.parquet.read_table(path)
        pa.parquet.write_table(table.rename_columns(["label", "unread", "n", "c"]), path, row_group_size=100)
    elif kind == "header":
        path.write_bytes(path.read_bytes().replace(b"n\tc", b"c\tn"))
    else:
        path.write_bytes(gzip.compress(b"label\tc\tn\n") + gzip.compress(as_text(ROWS)))
    os.utime(path, ns=(7, 7))
    with pytest.raises(InputError, match="the file changed while it was read"):
        list(LogReader(log).read_range(first))


def test_files_of_the_same_bytes_are_named(tmp_path):
    for name, text in (("a", b"x"), ("b", b"y"), ("c", b"x")):
        (tmp_path / name).write_bytes(text)
    a, b, c = (str(tmp_path / name) for name in "abc")
    told = f"{c} has the same bytes as {a}: its rows count twice, and may be training and test rows at once"
    assert same_contents([describe_file(path) for path in (a, b, c)]) == [told]
    assert same_contents([describe_file(path) for path in (a, a, b)]) == []  # named twice is meant


def test_many_files_of_the_same_bytes_are_some_lines_and_a_number():
    data = [{"path": f"{number}.csv", "sha256": "a"} for number in range(5_000)]
    lines = same_contents(data)
    assert len(lines) == 11 and lines[9].startswith("10.csv has the same bytes as 0.csv: ")
    assert lines[10] == "4,989 further files have the same bytes as an earlier one, and count twice too"
    assert len(same_contents(data[:12])) == 11 and "11.csv" in same_contents(data[:12])[10]
