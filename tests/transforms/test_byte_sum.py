"""What ingestion reads is what was hashed: the sums of the ranges are zlib's over the whole file."""

import gzip
import os
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.byte_sum import ByteSum, joined
from ctrpipe.transforms.log.files import sums_of_files
from ctrpipe.transforms.log.formats import parquet
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

ROWS = [f"{row % 3 == 0:d}\t{row}\tv{row % 7}".encode() for row in range(600)]
CHANGES = ("cut", "grown", "edited")
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


def of(data: bytes) -> ByteSum:
    return ByteSum(len(data), zlib.crc32(data))


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 1000)


@pytest.mark.parametrize("size", [0, 1, 7, 5000, 100_003])
def test_pieces_have_the_sum_of_the_whole(size):
    data = np.random.default_rng(size).bytes(size)
    cuts = [0, *sorted(np.random.default_rng(1).integers(0, size + 1, 5).tolist()), size]
    pieces = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        piece = ByteSum()
        piece.add(data[start : (start + stop) // 2])
        piece.add(data[(start + stop) // 2 : stop])
        pieces.append(piece)
    assert joined(pieces) == of(data)


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_have_all_bytes_of_their_files(tmp_path, kind):
    log, name, encoded = KINDS[kind]
    paths, contents = [], []
    for folder, rows in (("a", ROWS), ("b", ROWS[:50]), ("c", ROWS[100:])):
        (tmp_path / folder).mkdir()
        paths.append(tmp_path / folder / name)
        contents.append(encoded(rows))
        paths[-1].write_bytes(contents[-1])
    ranges = plan([str(path) for path in [*paths, paths[0]]], log)
    assert len(ranges) > 8 or "gzip" in kind
    sums = [ByteSum() for _ in ranges]
    rows = 0
    for part, read in zip(ranges, sums, strict=True):
        rows += sum(len(batch.lines) for batch in LogReader(log).read_range(part, read))
    assert rows == 600 + 50 + 500 + 600
    assert sums_of_files(ranges, sums) == [of(content) for content in [*contents, contents[0]]]


def test_row_groups_out_of_order_are_one_range(tmp_path, monkeypatch):
    path = tmp_path / "log.parquet"
    path.write_bytes(as_parquet(ROWS))
    monkeypatch.setattr(parquet, "_offsets", lambda metadata: [4, 900, 500, *range(1000, 1003)])
    (part,) = plan([str(path)], spec(format="parquet", columns=[]))
    read = ByteSum()
    assert (
        sum(len(batch.lines) for batch in LogReader(spec(format="parquet", columns=[])).read_range(part, read)) == 600
    )
    assert read == of(path.read_bytes())


def ingested(folder, paths, log, workers, hashed):
    folders = {name: folder / name for name in SPLITS}
    for split in folders.values():
        split.mkdir(exist_ok=True, parents=True)
    return ingest(log, [str(path) for path in paths], 1, folders, folder / "dead", workers, hashed=hashed)


def changed_by(kind: str, rows: list[bytes]) -> list[bytes]:
    if kind == "cut":
        return rows[: len(rows) // 2]
    if kind == "grown":
        return [*rows, rows[0]]
    return [*rows[:-3], rows[-3].replace(b"v", b"w"), *rows[-2:]]  # of the same size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "change", "place"),
    [
        *((kind, change, "here") for kind in KINDS for change in CHANGES),
        ("text", "cut", "two processes"),
        pytest.param("gzip", "grown", "two processes", marks=pytest.mark.large),
        pytest.param("parquet", "edited", "two processes", marks=pytest.mark.large),
    ],
)
def test_a_file_that_is_another_than_was_hashed_is_refused(tmp_path, kind, change, place):
    log, name, encoded = KINDS[kind]
    first, second = tmp_path / f"1{name}", tmp_path / f"2{name}"
    whole = encoded(ROWS)  # once: gzip writes the time into its header
    for path in (first, second):
        path.write_bytes(whole)
    hashed = [of(path.read_bytes()) for path in (first, second)]
    status = os.stat(second)
    second.write_bytes(encoded(changed_by(change, ROWS)))
    os.utime(second, ns=(status.st_atime_ns, status.st_mtime_ns))  # its time says nothing
    with pytest.raises(InputError, match=f"2{name}: the file changed while it was read; let nothing write to it"):
        ingested(tmp_path / "out", [first, second], log, PLACES[place], hashed)
    assert not [*(tmp_path / "out").rglob("*.parquet")]
    second.write_bytes(whole)
    result = ingested(tmp_path / "out", [first, second], log, PLACES[place], [of(first.read_bytes())] * 2)
    assert sum(result.rows.values()) == 1200


@pytest.mark.parametrize("kind", ["header", "two gzip members", "parquet"])
def test_what_says_how_to_read_is_that_of_the_plan(tmp_path, kind):
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
    with pytest.raises(InputError, match="the file changed while it was read"):
        list(LogReader(log).read_range(first, ByteSum()))
