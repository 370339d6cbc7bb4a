"""File types by their first bytes: compressions, encodings, delimiters, and files that are not logs."""

import bz2
import csv
import gzip
import io
import json
import lzma
import pickle
import sqlite3
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log import lines, recoded
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.sample import read_sample
from ctrpipe.transforms.log.spec import LogSpec

ROWS = [(1, 2.5, "Köln"), (0, 7.0, "a"), (1, None, "“dé”"), (0, -1.0, "x y")]
TSV = "".join(f"{y}\t{'' if n is None else n}\t{c}\n" for y, n, c in ROWS)
HEADED = "y\tn\tc\n" + TSV
READ = [(n, c.encode(), float(y)) for y, n, c in ROWS]


def spec(**data) -> LogSpec:
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    return LogSpec.model_validate({"data": {"labels": {"ctr": "y"}, **data}, "features": features})


HEADER = spec(header=True)


def write(folder, content, name="log.tsv") -> str:
    (folder / name).write_bytes(content)
    return str(folder / name)


def read(path: str, log: LogSpec, labels: bool = True):
    """The rows and rejects of a file, read by ranges."""
    rows, rejects = [], []
    for part in plan([path], log, labels):
        for batch in LogReader(log, labels).read_range(part):
            rows += [tuple(row.values()) for row in batch.rows.select(["n", "c", *(["y"] * labels)]).to_pylist()]
            rejects += [(reject.line, reject.reason, reject.text) for reject in batch.rejects]
    return rows, rejects


# Compressions --------------------------------------------------------------------------------------------------------

COMPRESSIONS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "gzip of two members": lambda text: gzip.compress(text[:20]) + gzip.compress(text[20:]),
    "bz2": bz2.compress,
    "bz2 of two streams": lambda text: bz2.compress(text[:20]) + bz2.compress(text[20:]),
    "zstd": lambda text: pa.compress(text, "zstd", asbytes=True),
    "zstd after a skippable frame": lambda text: (
        b"\x50\x2a\x4d\x18\x03\0\0\0abc" + pa.compress(text, "zstd", asbytes=True)
    ),
}


@pytest.mark.parametrize("name", ["log", "log.tsv", "log.csv.gz", "log.zst", "log.parquet", "log.bz2"])
@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_a_compression_is_known_by_its_bytes_whatever_the_name(tmp_path, compress, name):
    path = write(tmp_path, compress(HEADED.encode()), name)
    assert read(path, HEADER) == (READ, [])
    assert list(read_sample(path).columns) == ["y", "n", "c"]


@pytest.mark.parametrize("name", ["gzip", "bz2", "zstd"])
def test_a_compressed_file_that_is_cut_short_is_named_by_its_compression(tmp_path, name):
    text = "".join(f"1\t{number}\ta\n" for number in np.random.default_rng(0).integers(0, 10**9, 30_000))
    path = write(tmp_path, COMPRESSIONS[name](text.encode())[:-500], "log.csv")
    with pytest.raises(InputError, match=rf"log\.csv: (the {name} file is cut short|not a whole {name} file)"):
        read(path, spec(columns=["y", "n", "c"]))


def test_a_file_compressed_twice_is_refused(tmp_path):
    with pytest.raises(InputError, match="compressed twice, the second time with bz2"):
        read(write(tmp_path, gzip.compress(bz2.compress(TSV.encode()))), HEADER)


# Encodings -----------------------------------------------------------------------------------------------------------

ENCODED = {
    "utf-8": ("utf-8", "utf-8"),
    "utf-8 with a mark": ("utf-8-sig", "utf-8"),
    "utf-16 with a mark": ("utf-16", "utf-16"),
    "utf-16 without": ("utf-16-le", "utf-16"),
    "big-endian without": ("utf-16-be", "utf-16"),
    "utf-16-le": ("utf-16-le", "utf-16-le"),
    "a mark decides": ("utf-16", "utf-16-be"),
    "utf-32": ("utf-32", "utf-32"),
    "cp1252": ("cp1252", "windows-1252"),
    "gb18030": ("gb18030", "GB18030"),
}


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize(("codec", "encoding"), ENCODED.values(), ids=ENCODED)
@pytest.mark.parametrize("header", [True, False])
def test_a_text_is_read_in_the_encoding_of_the_configuration(tmp_path, codec, encoding, compress, header, monkeypatch):
    monkeypatch.setattr(recoded, "_BLOCK_BYTES", 7)  # cuts signs and marks
    path = write(tmp_path, compress((HEADED if header else TSV).encode(codec)))
    log = spec(header=header, encoding=encoding, **({} if header else {"columns": ["y", "n", "c"]}))
    assert read(path, log) == (READ, [])
    assert read(path, log, labels=False)[0] == [row[:2] for row in READ]


def test_json_lines_are_read_in_the_encoding_of_the_configuration(tmp_path):
    text = "".join(json.dumps({"y": y, "n": n, "c": c}, ensure_ascii=False) + "\n" for y, n, c in ROWS)
    for encoding in ("utf-8-sig", "utf-16", "cp1252"):
        path = write(tmp_path, text.encode(encoding))
        assert read(path, spec(format="jsonl", encoding=encoding)) == (READ, [])


def test_bytes_that_the_encoding_lacks_make_their_row_malformed(tmp_path):
    path = write(tmp_path, HEADED.encode("cp1252") + b"1\t2\t\x81\n0\t3\tb\n")  # 0x81 is nothing in cp1252
    rows, [(line, reason, _)] = read(path, spec(header=True, encoding="cp1252"))
    assert (line, reason[:16]) == (6, "c: invalid UTF-8") and rows == [*READ, (3.0, b"b", 0.0)]
    path = write(tmp_path, HEADED.encode("utf-16") + b"x")  # half a sign
    rows, [(line, _, _)] = read(path, spec(header=True, encoding="utf-16"))
    assert rows == READ and line == 6


@pytest.mark.parametrize(
    ("codec", "encoding", "message"),
    [
        ("utf-16", "utf-8", "looks like UTF-16, but data.encoding is utf-8; write data.encoding: utf-16"),
        ("utf-16-be", "utf-8", "looks like UTF-16-BE"),
        ("utf-16-le", "latin-1", "looks like UTF-16-LE, but data.encoding is latin-1"),
        ("utf-32", "utf-16", "looks like UTF-32, but data.encoding is utf-16; write data.encoding: utf-32"),
        ("utf-8", "utf-16", "looks like UTF-8, but data.encoding is utf-16; write data.encoding: utf-8"),
        ("cp1252", "utf-16", "write data.encoding: cp1252"),
        ("utf-8", "cp1252", "looks like UTF-8, but data.encoding is cp1252"),
        ("utf-8-sig", "cp1252", "looks like UTF-8"),
    ],
)
def test_bytes_that_look_like_another_encoding_are_refused_with_a_hint(tmp_path, codec, encoding, message):
    with pytest.raises(InputError, match=message):
        read(write(tmp_path, HEADED.encode(codec)), spec(header=True, encoding=encoding))


def test_a_text_of_one_byte_a_sign_is_malformed_with_a_hint_and_its_header_refused(tmp_path):
    rows, rejects = read(write(tmp_path, HEADED.encode("cp1252")), HEADER)
    assert len(rows) == 2
    assert {reason for _, reason, _ in rejects} == {
        "c: invalid UTF-8 (data.encoding names another encoding, such as cp1252)"
    }
    log = spec(header=True, weight="größe")
    with pytest.raises(InputError, match="the header is not utf-8; write the log's encoding as data.encoding"):
        read(write(tmp_path, "y\tn\tc\tgröße\n1\t2\t3\t4\n".encode("latin-1")), log)


def test_an_unknown_encoding_is_refused_before_anything_is_read():
    for name in ("utf-9", "base64", ""):
        with pytest.raises(ValueError, match="is not a text encoding"):
            spec(header=True, encoding=name)
    with pytest.raises(ValueError, match="encoding applies to text"):
        spec(format="parquet", encoding="cp1252")


# Delimiters ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", ["::", "||", "\x01", "~|~", ", ", "§", "\t\t", "\x1f\x1e"])
@pytest.mark.parametrize("form", ["csv", "tsv"])
def test_a_delimiter_has_one_character_or_several(tmp_path, delimiter, form, monkeypatch):
    monkeypatch.setattr(lines, "CHUNK_BYTES", 16)
    path = write(tmp_path, HEADED.replace("\t", delimiter).encode())
    assert read(path, spec(format=form, header=True, delimiter=delimiter)) == (READ, [])
    path = write(tmp_path, (TSV + "1\t2\n0\t\x1fz\ta\n").replace("\t", delimiter).encode())
    rows, [short, wrong] = read(path, spec(format=form, columns=["y", "n", "c"], delimiter=delimiter))
    assert rows == READ
    assert short == (5, "expected 3 columns, found 2", f"1{delimiter}2")
    assert wrong == (6, r"n: '\x1fz' is not a number", f"0{delimiter}\x1fz{delimiter}a")


@pytest.mark.parametrize("breaks", [False, True])
def test_quoted_values_may_hold_a_delimiter_of_several_characters(tmp_path, breaks):
    values = ["a::b", 'say "x"::', ":", "::", "p:q", "l\nm::" if breaks else "l"]
    written = io.StringIO()
    csv.writer(written, delimiter="\x1f", lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(
        [[1, 2, value] for value in values]
    )
    path = write(tmp_path, written.getvalue().replace("\x1f", "::").encode())
    log = spec(format="csv", columns=["y", "n", "c"], delimiter="::", quoted_line_breaks=breaks)
    assert read(path, log) == ([(2.0, value.encode(), 1.0) for value in values], [])


# Files that are no log -----------------------------------------------------------------------------------------------


def zipped(**members) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, text in members.items():
            archive.writestr(name.replace("__", "/"), text)
    return file.getvalue()


def tarred(text: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("log.tsv")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return file.getvalue()


def written(writer) -> bytes:
    file = io.BytesIO()
    writer(file)
    return file.getvalue()


def database(tmp_path) -> bytes:
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute("create table log (y, n, c)")
    return (tmp_path / "db").read_bytes()


TABLE = pa.table({"y": [1, 0], "n": [1.0, 2.0], "c": ["a", "b"]})
RECORDS = [{"y": 1, "n": 2, "c": "a"}, {"y": 0, "n": 3, "c": "b"}]
KINDS = {
    "a zip archive": zipped(log=HEADED),
    "an Excel workbook": zipped(xl__workbook="<x/>"),
    "an xz file": lzma.compress(HEADED.encode()),
    "a 7z archive": b"7z\xbc\xaf\x27\x1c\0\4" + bytes(30),
    "a RAR archive": b"Rar!\x1a\x07\1\0" + bytes(30),
    "an lz4 file": pa.compress(HEADED.encode() * 9, "lz4", asbytes=True),
    "a tar archive": tarred(HEADED.encode()),
    "an Arrow IPC": written(lambda file: pa.feather.write_feather(TABLE, file, compression="uncompressed")),
    "a NumPy array": written(lambda file: np.save(file, np.arange(9))),
    "a pickle": pickle.dumps(RECORDS),
    "an HDF5 file": b"\x89HDF\r\n\x1a\n" + bytes(30),
    "a PDF document": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj",
    "an HTML page": b"\n<!DOCTYPE html>\n<html><body>Log in</body></html>\n",
    "an XML document": b'<?xml version="1.0"?>\n<rows/>\n',
    "a pointer of Git LFS": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    "old Microsoft Office": b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(30),
    "an unknown binary file": bytes(range(256)) * 9,
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_refused_by_name(tmp_path, kind):
    for log in (HEADER, spec(format="csv", columns=["y", "n", "c"]), spec(format="jsonl"), spec(format="parquet")):
        path = write(tmp_path, KINDS[kind], "log.csv")
        with pytest.raises(InputError) as error:
            read(path, log)
        found = "unknown binary file" if log.data.format == "parquet" and "unknown" in kind else kind
        assert found in str(error.value) and "; " in str(error.value)
        assert str(error.value).isprintable() and str(error.value).isascii()
    with pytest.raises(InputError, match=kind):
        read_sample(path)
    with pytest.raises(InputError, match=kind):
        read(write(tmp_path, gzip.compress(KINDS[kind]), "log.csv.gz"), HEADER)


@pytest.mark.parametrize(("line", "log"), [(1, HEADER), (3, HEADER), (3, spec(format="jsonl"))])
def test_a_text_with_nul_bytes_is_refused_with_the_line_of_the_first(tmp_path, line, log):
    lines = [b"y,n,c"] + [b"0,1,ab"] * 40
    lines[line - 1 :] = [text.replace(b"a", b"\0\0").replace(b"c", b"\0c\0") for text in lines[line - 1 :]]
    path = write(tmp_path, b"\n".join(lines) + b"\n", "log.csv")
    for reading in (lambda: read(path, log), lambda: read_sample(path)):
        with pytest.raises(InputError, match=rf"log.csv: line {line}: a NUL byte, and more follow.*; correct") as error:
            reading()
        assert str(error.value).isprintable()


def test_a_database_is_refused_by_name(tmp_path):
    with pytest.raises(InputError, match="an SQLite database, which is not supported; export its table"):
        read(write(tmp_path, database(tmp_path)), HEADER)


def test_parquet_is_known_under_any_name_and_what_is_not_is_named(tmp_path):
    pa.parquet.write_table(TABLE, tmp_path / "log.csv")
    expected = [(1.0, b"a", 1.0), (2.0, b"b", 0.0)]
    for log in (HEADER, spec(format="csv", columns=["y", "n", "c"]), spec(format="parquet"), spec(format="jsonl")):
        assert read(str(tmp_path / "log.csv"), log) == (expected, [])
    sample = read_sample(str(tmp_path / "log.csv"))
    assert sample.data == {"format": "parquet"} and sample.columns["c"] == ["a", "b"]
    packed = write(tmp_path, gzip.compress((tmp_path / "log.csv").read_bytes()), "log.parquet.gz")
    with pytest.raises(InputError, match="a compressed Parquet file"):
        read(packed, HEADER)
    for content, message in (
        (HEADED.encode(), "a text, but data.format is parquet; write data.format: csv or tsv"),
        (HEADED.encode("utf-16"), "a text, but data.format is parquet"),
        (json.dumps(RECORDS[0]).encode(), "write data.format: jsonl"),
        (gzip.compress(HEADED.encode()), "a gzip file, but data.format is parquet"),
        (b"", "not a readable Parquet file"),
    ):
        with pytest.raises(InputError, match=message):
            read(write(tmp_path, content, "log.parquet"), spec(format="parquet"))


JSON_ARRAYS = [json.dumps(RECORDS), json.dumps(RECORDS, indent=1), "\ufeff" + json.dumps(RECORDS)]


@pytest.mark.parametrize("text", JSON_ARRAYS)
def test_a_json_array_is_no_table(tmp_path, text):
    path = write(tmp_path, text.encode(), "log.json")
    for log in (HEADER, spec(format="csv", columns=["y", "n", "c"])):
        with pytest.raises(InputError, match=r"a JSON array, but data\.format is (tsv|csv); write data\.format: json"):
            read(path, log)
    with pytest.raises(InputError, match=r"a text, but data\.format is parquet; write data\.format: json"):
        read(path, spec(format="parquet"))


def test_text_of_another_format_than_the_configured_one_is_named(tmp_path):
    one_document = json.dumps(RECORDS[0], indent=1).encode()
    for content, log, message in (
        (json.dumps(RECORDS[0]).encode(), HEADER, "JSON lines, but data.format is tsv; write data.format: jsonl"),
        (one_document, spec(format="jsonl"), "a JSON object over several lines"),
        (one_document, HEADER, "a JSON object over several lines"),
        (HEADED.encode(), spec(format="jsonl"), "no line is a JSON object, but data.format is jsonl"),
        (b"# exported today\n" + HEADED.encode(), HEADER, "line 1 is '# exported today'; remove the lines above"),
        (b"sep=;\n" + HEADED.encode(), HEADER, "line 1 is 'sep=;'; remove the lines above the header"),
    ):
        with pytest.raises(InputError, match=message):
            read(write(tmp_path, content), log)


def test_json_lines_whose_first_line_is_cut_are_read(tmp_path):
    path = write(tmp_path, b'k": 1, "n": 2}\n' + b"".join(json.dumps(row).encode() + b"\n" for row in RECORDS))
    rows, [(line, _, _)] = read(path, spec(format="jsonl"))
    assert rows == [(2.0, b"a", 1.0), (3.0, b"b", 0.0)] and line == 1


def test_texts_that_begin_as_another_kind_of_file_are_read(tmp_path):
    """ORC and GIF8 are also words, a list of objects may be a value, and a log may have a few odd bytes."""
    for first in ("ORC", "GIF8", "LZIP", "PARE", '[{"a": 1}]', "BZh", "\x1b[0m"):
        path = write(tmp_path, f"{first}\t1\t2\n{TSV.replace('ö', 'o')}".encode())
        rows, _ = read(path, spec(columns=["c", "y", "n"], max_bad_row_rate=1))
        assert rows[0] == (2.0, first.encode(), 1.0)
    path = write(tmp_path, HEADED.encode() + b"1\t2\t\0\0\n")
    assert read(path, HEADER)[0] == [*READ, (2.0, b"\0\0", 1.0)]


# Messages ------------------------------------------------------------------------------------------------------------


def test_no_message_has_bytes_that_are_no_text_or_a_whole_row(tmp_path):
    garbage = bytes(np.random.default_rng(1).integers(128, 256, 900).astype(np.uint8))
    content = b"x" * 2000 + b"\t1\tc\n" + b"1\t" + b"7" * 500 + b"x\tc\n" + b"1\t" + garbage + b"\tc\n"
    _, rejects = read(write(tmp_path, content), spec(columns=["y", "n", "c"]))
    assert len(rejects) == 3 and all(len(reason) < 200 and reason.isprintable() for _, reason, _ in rejects)
    assert rejects[2][1] == "n: '<900 bytes that are no text>' is not a number"
    names = "\t".join(f"column_{number}" for number in range(500))
    with pytest.raises(
        InputError, match="the header lacks n, c, y, which the configuration names; it has column_0"
    ) as error:
        read(write(tmp_path, names.encode() + b"\n"), HEADER)
    assert len(str(error.value)) < 200 + len(str(tmp_path))


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_a_file_that_is_gone_is_said_with_what_to_do(tmp_path, form):
    features = [{"kind": "categorical", "columns": ["c"]}]
    data = {"format": form, "labels": {"ctr": "y"}, **({"header": True} if form == "csv" else {})}
    spec = LogSpec.model_validate({"data": data, "features": features})
    gone = tmp_path / f"log.{form}"
    with pytest.raises(
        InputError, match=r"\(No such file or directory\); check the path, and keep the log's files in place"
    ):
        list(LogReader(spec).read(str(gone)))
