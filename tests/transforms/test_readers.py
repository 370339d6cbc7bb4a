import csv
import gzip
import io
import itertools
import os
import pickle
import re
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from _pytest.mark import ParameterSet

from ctrpipe.common.errors import InputError
from ctrpipe.common.printable import printable
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log import files, lines
from ctrpipe.transforms.log.files import find_files
from ctrpipe.transforms.log.first_bytes import ENCODING_HINT, is_binary
from ctrpipe.transforms.log.formats import parquet
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.spec import LogSpec

GOOD = b"1\t5\ta\n0\t-2\t\n1\t\tb\n"


def spec(**data) -> LogSpec:
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}]
    return LogSpec.model_validate(
        {"data": {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}, **data}, "features": features}
    )


def read(path, log=None, labels=True):
    """Rows as tuples with their lines, and the rejects."""
    return collect(LogReader(log or spec(), labels).read(str(path)))


def read_ranges(path, log=None, labels=True):
    """Reads each planned range; returns the rows and rejects of each."""
    reader, ranges = LogReader(log or spec(), labels), plan([str(path)], log or spec(), labels)
    return [collect(reader.read_range(part)) for part in ranges]


def collect(batches):
    rows, rejects = [], []
    for batch in batches:
        names = batch.rows.schema.names
        for line, row in zip(batch.lines.tolist(), batch.rows.to_pylist(), strict=True):
            rows.append((line, *(row[name] for name in names)))
        rejects += batch.rejects
    return rows, rejects


def joined(parts):
    return [row for rows, _ in parts for row in rows], [reject for _, rejects in parts for reject in rejects]


def write(tmp_path, content, name="log.tsv"):
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return path


ROWS = [(1, 5.0, b"a", 1.0), (2, -2.0, None, 0.0), (3, None, b"b", 1.0)]


def test_a_pipe_is_no_log_and_says_what_to_do(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), os.devnull):
        with pytest.raises(InputError, match=f"^{path}: not a regular file but a pipe or a device, and a log is read"):
            find_files([path])
    for name in ("absent", "link"):
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(name)
        with pytest.raises(InputError, match=f"link: no such file; it is a link to {name}, which does not exist$"):
            find_files([str(tmp_path / "link")])


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
    assert [reject.line for reject in whole[1]] == [10]
    assert [row[0] for row in whole[0]] == [*range(1, 10), 11, 12, 13]


OBJECTS = b"".join(
    b'{"label": %b, "n": %b, "c": "%b"}\n' % (label, number or b"null", text)
    for label, number, text in (line.split(b"\t") for line in GOOD.splitlines())
)
TEXTS = {
    "tsv": (GOOD, {}),
    "csv": (GOOD.replace(b"\t", b","), {"format": "csv"}),
    "headed": (b"label,n,c\n" + GOOD.replace(b"\t", b","), {"format": "csv", "header": True}),
    "records": (GOOD.replace(b"\t", b","), {"format": "csv", "quoted_line_breaks": True}),
    "wide": (GOOD.replace(b"\t", b"::"), {"format": "csv", "delimiter": "::"}),
    "utf-16": (GOOD, {"encoding": "utf-16"}),
    "jsonl": (OBJECTS, {"format": "jsonl"}),
}


def texts_in_pieces() -> Iterator[ParameterSet]:
    """In `make test` each kind in the smallest pieces, and one of them in larger ones and compressed."""
    for kind, size, name in itertools.product(TEXTS, (1, 5, 1 << 20), ("log.txt", "log.txt.gz")):
        in_make_test = (size, name) == (1, "log.txt") or kind == "tsv"
        yield pytest.param(kind, size, name, marks=[] if in_make_test else [pytest.mark.large])


@pytest.mark.parametrize(("kind", "size", "name"), texts_in_pieces())
def test_empty_lines_at_the_end_are_no_rows_and_elsewhere_malformed(tmp_path, monkeypatch, kind, name, size):
    content, data = TEXTS[kind]
    log = spec(**({"columns": []} if kind in ("headed", "jsonl") else {}), **data)
    encoding = data.get("encoding", "utf-8")
    monkeypatch.setattr(lines, "CHUNK_BYTES", size)
    monkeypatch.setattr(files, "RANGE_BYTES", 40)
    monkeypatch.setattr(files, "_END_BYTES", 3)
    first = 1 + (kind == "headed")
    for end in (b"", b"\n", b"\n" * 90, b"\r\n" * 2, b"\n\r\n\r"):
        text = content.decode() * 3 if kind != "headed" else content.decode() + GOOD.decode().replace("\t", ",") * 2
        path = write(tmp_path, (text + end.decode()).encode(encoding), name)
        for rows, rejects in (read(path, log), joined(read_ranges(path, log))):
            assert ([row[1:] for row in rows], rejects) == ([row[1:] for row in ROWS] * 3, [])
            assert [row[0] for row in rows] == list(range(first, first + 9))
        at_the_end = write(tmp_path, text.removesuffix("\n").encode(encoding), name)
        assert len(read(at_the_end, log)[0]) == 9
    last = content.decode().splitlines(True)[-1]
    path = write(tmp_path, (content.decode() + "\n\r\n" + last + "\n\n").encode(encoding), name)
    for rows, rejects in (read(path, log), joined(read_ranges(path, log))):
        assert [row[0] for row in rows] == [first, first + 1, first + 2, first + 5]
        assert [reject.line for reject in rejects] == [first + 3, first + 4]


def test_an_empty_line_of_a_single_column_is_a_row(tmp_path):
    single = LogSpec.model_validate(
        {
            "data": {"columns": ["label", "c"], "labels": {"ctr": "label"}},
            "features": [{"kind": "categorical", "columns": ["c"]}],
        }
    )
    assert read(write(tmp_path, b"a\nb\n\n"), single, labels=False) == ([(1, b"a"), (2, b"b"), (3, None)], [])


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"1\t5", "expected 3 columns, found 2"),
        (b"1\t5\ta\tb", "expected 3 columns, found 4"),
        (b"1\tfive\ta", "n: 'five' is not a number"),
        (b"2\t5\ta", "label: the label must be 0 or 1, found '2'"),
        (b"\t5\ta", "label: the label must be 0 or 1, found nothing"),
        (b"1\t5\t\xff\xfe", f"c: invalid UTF-8{ENCODING_HINT}"),
        (b"", "the line is empty"),
        (b"1\t5\ta\rb", "a carriage return inside the row"),
        (b"1\t\xff", "expected 3 columns, found 2"),
        (b"1\t\xff\ta", "n: '\ufffd' is not a number"),
        (b"1\tinf\ta", "n: 'inf' is not a number"),
        (b"1\t0x10\ta", "n: '0x10' is not a number"),
        (b"1\t 5\ta", "n: ' 5' is not a number"),
        (b"1\t1e39\ta", "n: '1e39' is too large for a 32-bit float"),
        (b"1\t1e400\ta", "n: '1e400' is too large for a 32-bit float"),
    ],
)
def test_a_malformed_row_is_kept_with_its_line_and_reason(tmp_path, line, reason):
    rows, rejects = read(write(tmp_path, GOOD + line + b"\n" + GOOD))
    assert [(reject.line, reject.reason) for reject in rejects] == [(4, reason)]
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
    assert [(reject.line, reject.reason) for reject in rejects] == list(enumerate(reasons, 4))
    assert rows[:3] == ROWS and [row[0] for row in rows[-3:]] == [4 + count, 5 + count, 6 + count]
    assert len(rows) == 6 + count - len(reasons)


@pytest.mark.parametrize("is_compressed", [False, True])
def test_a_header_that_stands_in_the_file_again_is_no_row(tmp_path, is_compressed):
    """It would be one without a click, where each value but 1 is none and no column is a number."""
    log = LogSpec.model_validate(
        {
            "data": {"format": "csv", "header": True, "labels": {"ctr": {"column": "click", "positive": ["1"]}}},
            "features": [{"kind": "categorical", "columns": ["c", "d"]}],
        }
    )
    lines = ["click,c,d,n", "1,a,b,", "click,c,d,n", "0,c,e,1", "only,two", "click,c,x,n", "click,c,d,n"]
    path = write(tmp_path, "\n".join(lines).encode(), "log.csv.gz" if is_compressed else "log.csv")
    for labels in (True, False):
        rows, rejects = read(path, log, labels)
        assert [row[:3] for row in rows] == [(2, b"a", b"b"), (4, b"c", b"e"), (6, b"c", b"x")]
        assert [(reject.line, reject.text) for reject in rejects] == [(3, lines[2]), (5, lines[4]), (7, lines[6])]
        assert rejects[0].reason == "the header again; remove this line from the file"


def test_a_value_that_is_the_name_of_the_only_column_read_is_a_value(tmp_path):
    features = [{"kind": "categorical", "columns": ["query"]}]
    data = {"format": "csv", "header": True, "labels": {"ctr": "click"}}
    log = LogSpec.model_validate({"data": data, "features": features})
    rows, rejects = read(write(tmp_path, b"click,query\n1,query\n0,shoes\n", "log.csv"), log, labels=False)
    assert rows == [(2, b"query"), (3, b"shoes")] and not rejects


@pytest.mark.parametrize("written", ["Click", "CLICK", " click", "click "])
def test_a_label_that_looks_like_a_positive_one_is_no_negative_in_silence(tmp_path, written):
    def log(**label) -> LogSpec:
        return spec(labels={"ctr": {"column": "label", **label}})

    path = write(tmp_path, f"click\t5\ta\nclicks\t5\ta\n{written}\t5\ta\n".encode())
    rows, [reject] = read(path, log(positive=["click"]))
    assert [row[-1] for row in rows] == [1, 0] and reject.line == 3
    assert reject.reason == (
        f"label: '{written}' looks like a positive value; write them alike, or name it in data.labels"
    )
    for named, third in (
        ({"positive": ["click", written]}, 1),
        ({"positive": ["click"], "negative": [written, "clicks"]}, 0),
    ):
        rows, rejects = read(path, log(**named))
        assert [row[-1] for row in rows] == [1, 0, third] and not rejects


def test_quotes_of_csv_are_those_of_a_csv_reader(tmp_path):
    values = ['a"b', "a,b", '""', "plain", "é"]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([[1, 5, value] for value in values])
    rows, rejects = read(write(tmp_path, text.getvalue().encode()), spec(format="csv"))
    assert [row[2].decode() for row in rows] == values and not rejects


@pytest.mark.parametrize("content", [b"\n", b"\r\n\r\n", b"1\t5\ta\r0\t2\tb\r", b"1\t\xff\xfe\ta\n" * 9])
def test_a_file_without_a_good_row_is_rejected_line_by_line(tmp_path, content):
    rows, rejects = read(write(tmp_path, content))
    assert not rows
    assert [reject.line for reject in rejects] == list(range(1, 1 + len(content.rstrip(b"\n").split(b"\n"))))


def split_csv(line: bytes) -> list[bytes] | None:
    """The values of a line, byte by byte; None where a quote is not closed."""
    values, value, state, position = [], b"", "start", 0
    while position < len(line):
        byte, two = line[position : position + 1], line[position : position + 2]
        position += 1
        if state == "quoted":
            if two == b'""':
                value, position = value + b'"', position + 1
            elif byte == b'"':
                state = "plain"
            else:
                value += byte
        elif byte == b",":
            values, value, state = [*values, value], b"", "start"
        elif byte == b'"' and state == "start":
            state = "quoted"
        else:
            value, state = value + byte, "plain"
    return None if state == "quoted" else [*values, value]


def read_line(line: bytes, is_csv: bool) -> tuple | str:
    """The row (n, c, label) of a line, or what is wrong with it."""
    if not line:
        return "the line is empty"
    if b"\r" in line:
        return "a carriage return inside the row"
    values = split_csv(line) if is_csv else line.split(b"\t")
    if values is None:
        return "a quote is not closed"
    if len(values) != 3:
        return f"expected 3 columns, found {len(values)}"
    label, number, text = values
    if number in (b"nan", b"-"):
        number = b""
    if number:
        shown = f"n: '{number.decode('utf-8', 'replace')}'"
        if not re.fullmatch(rb"[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?", number):
            return f"{shown} is not a number"
        if abs(float(number)) > np.finfo(np.float32).max:
            return f"{shown} is too large for a 32-bit float"
    try:
        text.decode()
    except UnicodeDecodeError:
        return f"c: invalid UTF-8{ENCODING_HINT}"
    if label not in (b"0", b"1", b"0.0", b"1.0"):
        shown = f"'{printable(label.decode('utf-8', 'replace'))}'" if label else "nothing"
        return f"label: the label must be 0 or 1, found {shown}"
    return float(np.float32(number)) if number else None, text or None, float(label)


def slowly(content: bytes, is_csv: bool):
    """Reads line by line in Python; returns what `read` must return."""
    rows, rejects = [], []
    found = content.split(b"\n")
    for number, line in enumerate(found if found[-1] else found[:-1], 1):
        line = line.removesuffix(b"\r")
        result = read_line(line, is_csv)
        if isinstance(result, str):
            rejects.append((number, result, line.decode("utf-8", "backslashreplace")))
        else:
            rows.append((number, *result))
    return rows, rejects


WHOLE = [
    *(b"1\t5\ta", b"0\t-2.5\t", b"1.0\t\t\xc3\xa9", b"0\t+.5e3\ta b", b"1\t7.\tx", b"0\t1e-50\t\0"),
    *(
        b"1\t5",
        b"1\t5\ta\tb",
        b"1\t\xff",
        b"\xff\t\xff\t\xff\t\xff",
        b"",
        b"\r",
        b"\t\t",
        b"1\t5\ta\rb",
        b"1\t5\ta\r\r",
    ),
    *(
        b"1\tx\ta",
        b"1\t1-2\ta",
        b"1\t\xff\ta",
        b"1\tnan\ta",
        b"1\t-inf\ta",
        b"1\t 5\ta",
        b"1\t1e39\t\xff",
        b"1\t-1e400\ta",
    ),
    *(b"2\t5\ta", b"\t5\ta", b"\xff\t5\ta", b"3\tx\t\xff", b"1\t5\t\xff\xfe", b"0\t5\ta\xed\xa0\x80", b"1\t5\t\xc3"),
    *(
        b'1\t5\t"a',
        b'1\t"5"\ta',
        b'1\t5\t"a""b"',
        b'1\t5\ta"b',
        b'1\t5\t"a"b"',
        b'"1\t5\ta',
        b'1\t5\t"a\tb"',
        b'1\t"5\t"a"',
    ),
]
PIECES = [b"1", b"5", b"a", b"\t", b"\t", b"\n", b"\r", b"\r\n", b'"', b'"', b"\xff", b"\xc3\xa9", b"\0", b"-", b"e"]


@pytest.mark.slow
@pytest.mark.parametrize("file_format", ["tsv", "csv"])
@pytest.mark.parametrize("seed", range(3))
def test_a_log_of_malformed_lines_is_read_as_a_slow_reader_reads_it(tmp_path, monkeypatch, file_format, seed):
    random = np.random.default_rng(seed)
    delimiter = b"," if file_format == "csv" else b"\t"
    log = spec(format=file_format)
    for _ in range(20):
        found: list[bytes] = []
        for _ in range(random.integers(1, 120)):
            kind = random.integers(0, 10)
            if kind == 0:
                found.append(b"".join(PIECES[index] for index in random.integers(0, len(PIECES), 12)))
            else:
                found.append(WHOLE[random.integers(0, 6 if kind < 8 else len(WHOLE))])
        ends = [b"\n", b"\r\n"]
        content = b"".join(line + ends[random.random() < 0.2] for line in found).replace(b"\t", delimiter)
        content = content[: len(content) - random.integers(0, 3)] or b"1"
        if is_binary(content):  # refused as a whole
            continue
        monkeypatch.setattr(lines, "CHUNK_BYTES", int(random.choice([60, 300, 1 << 21])))
        monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", int(random.choice([1, 300, 1000])))
        path = write(tmp_path, content)
        expected = slowly(content, file_format == "csv")
        for rows, rejects in (read(path, log), joined(read_ranges(path, log))):
            assert rows == expected[0], content
            assert [(reject.line, reject.reason, reject.text) for reject in rejects] == expected[1], content


@pytest.mark.parametrize("count", [1, 3, 8, 1000])
def test_quotes_of_every_column_are_no_reason_to_look_at_lines(tmp_path, monkeypatch, count):
    """One bad line does not slow down the others: only suspect lines are read by Python."""
    seen: list[bytes] = []
    fault = lines.Lines._fault
    monkeypatch.setattr(lines.Lines, "_fault", lambda self, line, width: seen.append(line) or fault(self, line, width))
    good = [b'"1","5","a ""quoted"", b"', b'1,"5",""', b'"0",,"""\xc3\xa9"""']
    bad = [b"", b'1,5,"a', b"1,5,\xff", b"1,5\r,a", b'"1","5","a']
    content = good * count + bad + good * count
    rows, rejects = read(write(tmp_path, b"\n".join(content)), spec(format="csv"))
    assert len(rows) == 6 * count and len(rejects) == 5
    assert seen == bad


@pytest.mark.parametrize(("content", "size"), [(GOOD * 40 + b"1\t5", 100), (b"1\t5\ta\r\n" * 50, 64), (GOOD, 1 << 20)])
def test_ranges_of_a_file_cut_no_line_and_number_their_lines(tmp_path, monkeypatch, content, size):
    path = write(tmp_path, content)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", size)
    ranges = plan([str(path)], spec())
    assert len(ranges) == max(1, len(content) // (size + 7)) or abs(len(ranges) - len(content) / size) < 3
    end = 0
    for part in ranges:
        assert part.start == end and content[: part.start].count(b"\n") + 1 == part.line
        end = part.start + part.length
        assert content[end - 1 : end] == b"\n" or end == len(content)
        assert part.length >= size or end == len(content)
    assert end == len(content)
    assert pickle.loads(pickle.dumps(ranges)) == ranges
    assert joined(read_ranges(path)) == read(path)


@pytest.mark.slow
def test_lines_may_be_counted_by_several_processes(tmp_path, monkeypatch):
    path = write(tmp_path, GOOD * 100)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 200)
    assert plan([str(path)] * 2, spec(), True, Workers(processes=2)) == plan([str(path)], spec()) * 2


def test_a_header_is_read_once_and_its_line_counts(tmp_path, monkeypatch):
    content = b"c,extra,label,n\n" + b"a,x,1,2.5\n" * 50
    path, log = write(tmp_path, content, "log.csv"), spec(format="csv", header=True)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 100)
    parts = read_ranges(path, log)
    assert len(parts) == 5
    assert joined(parts) == ([(line, 2.5, b"a", 1.0) for line in range(2, 52)], [])


def test_a_gzip_file_is_one_range(tmp_path, monkeypatch):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 100)
    for header, log in ((b"", spec()), (b"label\tn\tc\n", spec(header=True))):
        path = write(tmp_path, header + GOOD * 100, "log.tsv.gz")
        assert len(plan([str(path)], log)) == 1
        assert joined(read_ranges(path, log)) == read(path, log)
        assert read(path, log)[0][-1] == (300 + bool(header), None, b"b", 1.0)


def test_row_groups_of_parquet_are_ranges(tmp_path, monkeypatch):
    table = pa.table({"label": [0, 1] * 500, "n": [*range(999), 2**60], "c": [f"v{row}" for row in range(1000)]})
    path, log = tmp_path / "log.parquet", spec(format="parquet", columns=[])
    pa.parquet.write_table(table, path, row_group_size=100)
    whole = read(path, log)
    assert whole[0][998:] == [(999, 998.0, b"v998", 0.0), (1000, float(2**60), b"v999", 1.0)]
    size = pa.parquet.read_metadata(path).row_group(0).total_byte_size
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 2 * size)
    parts = read_ranges(path, log)
    assert 5 <= len(parts) <= 7 and [len(rows) % 100 for rows, _ in parts] == [0] * len(parts)
    assert joined(parts) == whole
    monkeypatch.setattr(parquet, "BATCH_ROWS", 33)
    assert read(path, log) == whole


def test_empty_texts_of_a_large_row_group_are_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "BATCH_ROWS", 7)
    texts = [f"v{row}" * (row % 3) for row in range(100)]
    path = tmp_path / "log.parquet"
    pa.parquet.write_table(pa.table({"label": [1] * 100, "n": [0.5] * 100, "c": texts}), path)
    rows, _ = read(path, spec(format="parquet", columns=[]))
    assert [row[2] for row in rows] == [text.encode() or None for text in texts]


def test_a_file_that_is_cut_short_after_it_was_planned_is_refused(tmp_path, monkeypatch):
    path = write(tmp_path, GOOD * 100)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 200)
    last = plan([str(path)], spec())[-1]
    path.write_bytes(GOOD * 99 + b"1\t5\ta\n")
    with pytest.raises(InputError, match="log.tsv: the file changed while it was read"):
        list(LogReader(spec()).read_range(last))


def test_header_decides_the_order_of_columns(tmp_path):
    path = write(tmp_path, b'c,extra,label,n\n"a,b",x,1,2.5\n', "log.csv")
    assert read(path, spec(format="csv", header=True)) == ([(2, 2.5, b"a,b", 1.0)], [])


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
        (b"c\tlabel\tn\na\t1\t2\n", r"the values are parted by '\\t', which data.delimiter is not"),
        (b'"c"; "label"; "n"\na;1;2\n', "the values are parted by ';', which data.delimiter is not"),
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
    assert rows == [(1, 5.0, None, 1.0), (2, None, "é".encode(), 0.0)] and not rejects


def test_nan_in_parquet_is_a_missing_number_and_a_bad_value_a_reject(tmp_path):
    numbers = pa.array([1.5, float("nan"), float("inf"), 2.0])
    table = pa.table({"label": pa.array([1.0, 0.0, 1.0, 2.0]), "n": numbers, "c": pa.array(["a", "b", "c", "d"])})
    pa.parquet.write_table(table, tmp_path / "log.parquet")
    rows, rejects = read(tmp_path / "log.parquet", spec(format="parquet", columns=[]))
    assert rows == [(1, 1.5, b"a", 1.0), (2, None, b"b", 0.0)]
    reasons = [(3, "n: 'inf' is not a number"), (4, "label: the label must be 0 or 1, found '2'")]
    assert [(reject.line, reject.reason) for reject in rejects] == reasons


def test_parquet_files_that_cannot_be_read_are_refused(tmp_path):
    log, path = spec(format="parquet", columns=[]), tmp_path / "log.parquet"
    table = pa.table({"label": [0, 1] * 500, "n": list(range(1000)), "c": [str(row) for row in range(1000)]})
    pa.parquet.write_table(table, path)
    whole = path.read_bytes()
    for content, message in (
        (GOOD, "a text, but data.format is parquet; write data.format: csv or tsv"),
        (whole[:-50], "not a readable Parquet file"),
        (whole[:10] + bytes(200) + whole[210:], "the Parquet file is damaged"),
        (whole.replace(b"label", b"lab\xe9l"), "not a readable Parquet file \\('utf-8' codec can't decode"),
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
    assert [(r.line, r.reason) for r in rejects] == [(1, "expected 2 columns, found 1")]


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
    path.write_bytes(gzip.compress(GOOD) + b"more")
    with pytest.raises(InputError, match="not a valid gzip"):
        read(path)


def test_missing_files_and_empty_globs_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        find_files([str(tmp_path / "absent.tsv")])
    with pytest.raises(InputError, match="no file matches"):
        find_files([str(tmp_path / "*.tsv")])
    with pytest.raises(InputError, match="No data"):
        find_files([])
    with pytest.raises(InputError, match="a folder without files; name"):
        find_files([str(tmp_path)])


def test_a_folder_is_its_files_unless_it_has_folders_too(tmp_path):
    for name in ("day_10.csv", "day_2.csv", "_SUCCESS", ".day_2.csv.crc"):
        write(tmp_path, GOOD, name)
    (tmp_path / "_temporary").mkdir()
    expected = [str(tmp_path / "day_2.csv"), str(tmp_path / "day_10.csv")]
    assert find_files([str(tmp_path)]) == find_files([f"{tmp_path}/"]) == expected
    (tmp_path / "old").mkdir()
    with pytest.raises(InputError, match=r"a folder with the folder old in it; name its files, as in '.*/\*\*/\*'"):
        find_files([str(tmp_path)])
    (tmp_path / "old").rename(tmp_path / "day=3")
    write(tmp_path / "day=3", GOOD, "part.csv")
    with pytest.raises(InputError, match=r"a folder with day_2.csv beside day=3; name its files, as in '.*/\*=\*/\*'"):
        find_files([str(tmp_path)])
    assert find_files([f"{tmp_path}/**/*.csv"]) == [str(tmp_path / "day=3" / "part.csv"), *expected]
    with pytest.raises(
        InputError, match=r"day=\*: matches only folders, such as .*; name their files, as in '.*/day=\*/\*'"
    ):
        find_files([f"{tmp_path}/day=*"])
    for name in ("day_2.csv", "day_10.csv"):
        (tmp_path / name).unlink()
    assert find_files([str(tmp_path)]) == [str(tmp_path / "day=3" / "part.csv")]
    (tmp_path / "day=3").rename(tmp_path / "_part=1")
    assert find_files([str(tmp_path)]) == [str(tmp_path / "_part=1" / "part.csv")]
    (tmp_path / "_delta_log").mkdir()
    with pytest.raises(
        InputError, match=f"a Delta table, whose files also contain removed rows; write delta:{tmp_path}"
    ):
        find_files([str(tmp_path)])


def test_globs_give_files_in_name_order_and_a_name_may_look_like_a_glob(tmp_path):
    for name in ("b.tsv", "a.tsv", "c[1].tsv"):
        write(tmp_path, GOOD, name)
    (tmp_path / "folder.tsv").mkdir()
    assert [path.rsplit("/")[-1] for path in find_files([f"{tmp_path}/*.tsv"])] == ["a.tsv", "b.tsv", "c[1].tsv"]
    assert find_files([f"{tmp_path}/c[1].tsv", f"{tmp_path}/[b].tsv"]) == [f"{tmp_path}/c[1].tsv", f"{tmp_path}/b.tsv"]


def test_numbers_in_names_are_counted_as_numbers(tmp_path):
    days = ["day=2/hour=9.csv", "day=2/hour=10.csv", "day=10/hour=0.csv", "day=010/hour=1.csv"]
    for name in days:
        (tmp_path / "log" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "log" / name).write_text("1\n")
    listed = [name.removeprefix(f"{tmp_path}/log/") for name in find_files([f"{tmp_path}/log"])]
    assert listed == days
    assert [path.rsplit("/", 2)[1] for path in find_files([f"{tmp_path}/log/day=*/*.csv"])] == [
        *("day=2", "day=2", "day=10", "day=010")
    ]
    for name in ("day_11.csv", "day_1.csv", "day_10.csv", "day_0.csv", "day_2.csv", "day_2b.csv", "2026-05-01.csv"):
        (tmp_path / name).write_text("1\n")
    names = [path.rsplit("/")[-1] for path in find_files([f"{tmp_path}/*.csv"])]
    assert names == [
        *("2026-05-01.csv", "day_0.csv", "day_1.csv", "day_2.csv", "day_2b.csv", "day_10.csv", "day_11.csv"),
    ]
    assert find_files([f"{tmp_path}/day_10.csv", f"{tmp_path}/day_2.csv"])[0].endswith("day_10.csv")


def test_the_real_log_has_60000_good_rows(real_data):
    features = [{"kind": "numeric", "columns": ["I1..I13"]}, {"kind": "categorical", "columns": ["C1..C26"]}]
    data = {"columns": ["label", "I1..I13", "C1..C26"], "labels": {"ctr": "label"}}
    log = LogSpec.model_validate({"data": data, "features": features})
    batches = list(LogReader(log).read(str(real_data / "criteo_60k.tsv.gz")))
    assert sum(batch.rows.num_rows for batch in batches) == 60_000
    assert not any(batch.rejects for batch in batches)
