"""JSON lines, zstd, partitioned folders, quoted line breaks and lists of Parquet."""

import csv
import datetime
import io
import json
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log import lines
from ctrpipe.transforms.log.files import find_files, partition_values
from ctrpipe.transforms.log.first_bytes import ENCODING_HINT
from ctrpipe.transforms.log.formats.registry import FORMATS
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.sample import read_sample
from ctrpipe.transforms.log.spec import FORMAT_NAMES, LogSpec
from ctrpipe.transforms.log.split import SPLITS

FEATURES = [
    {"kind": "numeric", "columns": ["n"]},
    {"kind": "categorical", "columns": ["c"]},
    {"kind": "multivalent", "columns": ["tags"], "max_length": 3},
]


def spec(features=FEATURES, **data) -> LogSpec:
    return LogSpec.model_validate({"data": {"labels": {"ctr": "y"}, **data}, "features": features})


def collect(batches):
    rows, rejects = [], []
    for batch in batches:
        names = batch.rows.schema.names
        values = ([row[name] for name in names] for row in batch.rows.to_pylist())
        rows += [(line, *row) for line, row in zip(batch.lines.tolist(), values, strict=True)]
        rejects += [(reject.line, reject.reason) for reject in batch.rejects]
    return rows, rejects


def test_every_format_of_the_configuration_is_read():
    assert tuple(FORMATS) == FORMAT_NAMES


def read(path, log):
    return collect(LogReader(log).read(str(path)))


def read_planned(path, log):
    """Reads the file by ranges; returns the same as `read`."""
    rows, rejects = [], []
    for part in plan([str(path)], log):
        some, bad = collect(LogReader(log).read_range(part))
        rows, rejects = rows + some, rejects + bad
    return rows, rejects


# JSON lines ----------------------------------------------------------------------------------------------------------

JSON = [
    '{"y": 1, "n": 5, "c": "a", "tags": ["p", "q"], "other": {"x": 1}}',
    '{"tags": [1, 2.50, null, ""], "c": 123456789012345678901, "y": true, "n": 1e3}',
    '{"y": "0", "n": "7.5", "c": "é\\u00e9", "tags": "p|q"}',
    '{"y": 0, "n": null, "c": "", "tags": []}',
    '{"y": 0, "n": NaN, "c": 1.0, "tags": null}',
]
JSON_ROWS = [
    (5.0, b"a", b"p|q", 1.0),
    (1000.0, b"123456789012345678901", b"1|2.5", 1.0),
    (7.5, "éé".encode(), b"p|q", 0.0),
    (None, None, None, 0.0),
    (None, b"1", None, 0.0),
]
BAD_JSON = {
    '{"y": 1,': "not valid JSON (Expecting property name enclosed in double quotes, column 9)",
    "[1, 2]": "expected a JSON object",
    "": "not valid JSON (Expecting value, column 1)",
    '{"y": 1, "c": ["a"]}': "c: expected one value, found a list",
    '{"y": 1, "n": {"a": 1}}': "n: expected one value, found an object",
    '{"y": 1, "tags": [["a"]]}': "tags: expected one value, found a list",
    '{"y": 1, "tags": ["a|b"]}': "tags: an element of the list has the separator '|' in it; set another separator",
    '{"y": 2}': "y: the label must be 0 or 1, found '2'",
    '{"n": 1}': "y: the label must be 0 or 1, found nothing",
    '{"y": 1, "n": "x"}': "n: 'x' is not a number",
    '{"y": 1, "c": "\\ud800"}': "c: invalid UTF-8",
    "[" * 100_000: "not valid JSON (nested too deeply)",
}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_json_lines_are_read_whatever_the_line_ends(tmp_path, mark, end):
    path = tmp_path / "log.jsonl"
    path.write_text(mark + end.join(JSON), newline="")
    rows, rejects = read(path, spec(format="jsonl"))
    assert rows == [(number, *row) for number, row in enumerate(JSON_ROWS, 1)] and not rejects


@pytest.mark.parametrize("size", [1, 1 << 25])
def test_malformed_json_is_kept_with_its_line_and_reason(tmp_path, monkeypatch, size):
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", size)
    path = tmp_path / "log.jsonl"
    path.write_bytes("\n".join([JSON[0], *BAD_JSON, JSON[0]]).encode() + b'\n{"y": 1, "c": "\xff"}\n')
    rows, rejects = read_planned(path, spec(format="jsonl"))
    assert rejects == [*enumerate(BAD_JSON.values(), 2), (len(BAD_JSON) + 3, f"invalid UTF-8{ENCODING_HINT}")]
    assert rows == [(1, *JSON_ROWS[0]), (len(BAD_JSON) + 2, *JSON_ROWS[0])]


# zstd ----------------------------------------------------------------------------------------------------------------

TSV = b"".join(b"%d\t%d\tv%d\tp|q\n" % (n % 2, n, n % 7) for n in range(20_000))
COLUMNS = {"columns": ["y", "n", "c", "tags"]}


@pytest.mark.parametrize("frames", [1, 3])
def test_zstd_of_several_frames_is_read(tmp_path, frames):
    plain, packed = tmp_path / "log.tsv", tmp_path / "log.tsv.zst"
    plain.write_bytes(TSV)
    pieces = np.array_split(np.frombuffer(TSV, np.uint8), frames)
    packed.write_bytes(b"".join(pa.compress(piece.tobytes(), "zstd", asbytes=True) for piece in pieces))
    rows, rejects = read_planned(packed, spec(**COLUMNS))
    assert (rows, rejects) == read(plain, spec(**COLUMNS)) and len(rows) == 20_000


@pytest.mark.parametrize("damage", [lambda data: data[:-10], lambda data: data + b"more"])
def test_a_damaged_zstd_file_is_one_line(tmp_path, damage):
    path = tmp_path / "log.tsv.zst"
    path.write_bytes(damage(pa.compress(TSV, "zstd", asbytes=True)))
    with pytest.raises(InputError, match=r"log\.tsv\.zst: not a whole zstd file"):
        read(path, spec(**COLUMNS))


# Folders -------------------------------------------------------------------------------------------------------------


def write_days(tmp_path, file_format):
    """Writes one file per day and two for day 3, next to files that do not belong to a log."""
    for number, day in enumerate(("2026-11-01", "2026-11-02", "2026-11-03", "2026-11-03")):
        folder = tmp_path / f"day={day}" / "shop=a%2Fb"
        folder.mkdir(parents=True, exist_ok=True)
        if file_format == "parquet":
            table = pa.table({"y": [0, 1], "c": [f"v{number}", "w"]})
            pa.parquet.write_table(table, folder / f"part-{number}.parquet")
        else:
            (folder / f"part-{number}.tsv").write_text(f"0\tv{number}\n1\tw\n")
        (folder / "_SUCCESS").touch()
    return spec(
        [{"kind": "categorical", "columns": ["c", "shop"]}, {"kind": "time", "columns": ["day"]}],
        format=file_format,
        partitions=["day", "shop"],
        columns=[] if file_format == "parquet" else ["y", "c"],
        split={"by": "time", "column": "day", "validation_from": "2026-11-02", "test_from": "2026-11-03"},
    )


@pytest.mark.parametrize("file_format", ["tsv", "parquet"])
def test_folders_of_days_are_a_log_and_their_names_a_column(tmp_path, file_format):
    log = write_days(tmp_path / "log", file_format)
    files = find_files([str(tmp_path / "log")])
    assert [file.rsplit("/", 1)[1].split(".")[0] for file in files] == ["part-0", "part-1", "part-2", "part-3"]
    folders = {name: tmp_path / name for name in SPLITS}
    for folder in folders.values():
        folder.mkdir()
    result = ingest(log, files, 0, folders, tmp_path / "dead", Workers(processes=1))
    assert result.rows == {"train": 2, "validation": 2, "test": 4} and not result.rejected
    (batch,) = read_payload(payload_files(folders["validation"]))
    assert batch["day"].to_pylist() == [b"2026-11-02"] * 2 and batch["shop"].to_pylist() == [b"a/b"] * 2


def test_files_beside_the_folders_of_days_are_not_left_out_in_silence(tmp_path):
    write_days(tmp_path / "log", "tsv")
    found = find_files([str(tmp_path / "log")])
    hidden = tmp_path / "log" / "day=2026-11-09" / "_temporary" / "0"
    hidden.mkdir(parents=True)
    (hidden / "part-9.tsv").write_text("0\tw\n")
    assert find_files([str(tmp_path / "log")]) == found
    (tmp_path / "log" / "new.tsv").write_text("0\tw\n")
    with pytest.raises(InputError, match="log: a folder with new.tsv beside day=.*; name its files"):
        find_files([f"{tmp_path}/log/"])
    with pytest.raises(
        InputError, match=r"day=\*: matches only folders, such as .*; name their files, as in '.*/day=\*/\*'"
    ):
        find_files([f"{tmp_path}/log/day=*"])


def test_a_path_without_the_folder_is_one_line(tmp_path):
    log = write_days(tmp_path, "tsv")
    (tmp_path / "log.tsv").write_text("0\ta\n")
    with pytest.raises(InputError, match=r"log\.tsv: no folder of the path is called shop=\.\.\., as data\.partitions"):
        read(tmp_path / "log.tsv", log)
    assert partition_values("a/day=1/h=__HIVE_DEFAULT_PARTITION__/x=y.tsv") == {"day": b"1", "h": None}


# Quoted line breaks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk", [40, 300, 1 << 21])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_quoted_line_breaks_are_those_of_a_csv_reader(tmp_path, monkeypatch, chunk, end):
    monkeypatch.setattr(lines, "CHUNK_BYTES", chunk)
    random = np.random.default_rng(chunk)
    pieces = ["a", end, '"', ",", "é", "", "long text " * 3]
    rows = [
        [row % 2, row, "".join(pieces[piece] for piece in random.integers(0, len(pieces), 4)), ""] for row in range(400)
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(rows)
    path = tmp_path / "log.csv"
    path.write_bytes(text.getvalue().encode())
    found, rejects = read(path, spec(format="csv", quoted_line_breaks=True, **COLUMNS))
    assert not rejects
    assert [row[2] for row in found] == [value.encode() or None for _, _, value, _ in rows]
    breaks = np.cumsum([0] + [1 + value.count(end) for _, _, value, _ in rows])
    assert [row[0] for row in found] == (1 + breaks[:-1]).tolist()


@pytest.mark.parametrize("chunk", [8, 1 << 21])
def test_a_quote_that_never_closes_costs_its_own_line(tmp_path, monkeypatch, chunk):
    monkeypatch.setattr(lines, "CHUNK_BYTES", chunk)
    text = b'1,1,"a\nb",\n0,2,"open,\n0,3,c,\n1,4,"d\n\ne",\n1,5,x"y,\n0,6,"f\ng"\n0,7,h,\n'
    path = tmp_path / "log.csv"
    path.write_bytes(text)
    rows, rejects = read(path, spec(format="csv", quoted_line_breaks=True, **COLUMNS))
    assert [(row[0], row[1], row[2]) for row in rows] == [
        *((1, 1.0, b"a\nb"), (4, 3.0, b"c"), (5, 4.0, b"d\n\ne")),
        *((8, 5.0, b'x"y'), (11, 7.0, b"h")),
    ]
    assert rejects == [
        *((3, "a quote is not closed"), (9, "a quote is not closed")),
        (10, "expected 4 columns, found 1"),
    ]


def test_a_line_break_in_quotes_says_how_to_read_it(tmp_path):
    with pytest.raises(ValueError, match="quoted_line_breaks applies to csv"):
        spec(quoted_line_breaks=True, **COLUMNS)


# Lists of Parquet ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_lists_of_parquet_become_multivalent_values(tmp_path, kind):
    tags = [["p", "q"], [], None, [None, "r", ""], ["s|t"], ["u"]]
    columns = {"y": [0, 1] * 3, "n": [1.0] * 6, "c": ["a"] * 6, "tags": pa.array(tags, kind(pa.string()))}
    pa.parquet.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=2)
    rows, rejects = read(tmp_path / "log.parquet", spec(format="parquet"))
    assert [row[3] for row in rows] == [b"p|q", None, None, b"r", b"u"]
    assert rejects == [(5, "tags: an element of the list has the separator '|' in it; set another separator")]


def test_lists_of_numbers_and_dictionaries_are_as_their_text(tmp_path):
    numbers = pa.array([[1, 2], [30]], pa.list_(pa.int64()))
    words = pa.ListArray.from_arrays([0, 1, 3], pa.array(["a", "b", "a"]).dictionary_encode())
    features = [{"kind": "multivalent", "columns": ["i", "d"], "max_length": 3, "separator": " "}]
    pa.parquet.write_table(pa.table({"y": [0, 1], "i": numbers, "d": words}), tmp_path / "log.parquet")
    rows, rejects = read(tmp_path / "log.parquet", spec(features, format="parquet"))
    assert [row[1:3] for row in rows] == [(b"1 2", b"a"), (b"30", b"b a")] and not rejects


def test_a_list_in_a_column_of_one_value_is_one_line(tmp_path):
    pa.parquet.write_table(
        pa.table({"y": [0, 1], "n": [1.0, 2.0], "c": [["a"], ["b"]], "tags": ["a", "b"]}), tmp_path / "log.parquet"
    )
    with pytest.raises(InputError, match="column c of type list<.*> cannot be read as a value per row"):
        read(tmp_path / "log.parquet", spec(format="parquet"))


def test_a_model_scores_json_as_it_scores_text(tmp_path):
    """The reader without labels, as scoring and clients use it."""
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(json.dumps({"n": n, "c": f"v{n}", "tags": ["a", "b"]}) for n in range(5)) + "\n")
    batches = LogReader(spec(format="jsonl"), labels=False).read(str(path))
    (batch,) = batches
    assert batch.rows.to_pylist() == [{"n": n, "c": b"v%d" % n, "tags": b"a|b"} for n in range(5)]


# Types of Parquet ----------------------------------------------------------------------------------------------------

HALF = pa.array(np.array([1.5, -2.0, np.nan], np.float16))
TWO = [b"a", "\u00e9".encode(), None]
MOMENTS = [datetime.datetime(2026, 1, 2, 3, 4, 5), datetime.datetime(2026, 12, 31), None]
UUIDS = [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1), None]
HALF_READ = ([1.5, -2.0, None], [b"1.5", b"-2", None])
TEXTS_READ = (None, TWO)
# The values of a column as numbers (None: they are none) and as texts.
PARQUET_TYPES = {
    "half floats": (HALF, *HALF_READ),
    "half floats of a dictionary": (pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), HALF[:2]), *HALF_READ),
    "decimals": (pa.array([Decimal("1.50"), Decimal("-2.25"), None]), [1.5, -2.25, None], [b"1.5", b"-2.25", None]),
    "decimals of 256 bits": (
        pa.array([Decimal("0.50"), Decimal("7.00"), None], pa.decimal256(50, 2)),
        [0.5, 7.0, None],
        [b"0.5", b"7", None],
    ),
    "times of day": (
        pa.array([datetime.time(3), datetime.time(10, 20, 30, 450000), None], pa.time32("ms")),
        None,
        [b"03:00:00", b"10:20:30.45", None],
    ),
    "uint64": (
        pa.array([2**64 - 1, 7, None], pa.uint64()),
        [2.0**64, 7.0, None],
        [b"18446744073709551615", b"7", None],
    ),
    "booleans": (pa.array([True, False, None]), [1.0, 0.0, None], [b"1", b"0", None]),
    "durations": (pa.array([datetime.timedelta(seconds=5), None, None]), [5.0, None, None], [b"5", None, None]),
    "durations in ms": (pa.array([5000, 1500, None], pa.duration("ms")), [5.0, 1.5, None], [b"5", b"1.5", None]),
    "nulls": (pa.nulls(3), [None] * 3, [None] * 3),
    "strings": (pa.array(["a", "\u00e9", None]), *TEXTS_READ),
    "large strings": (pa.array(["a", "\u00e9", None], pa.large_string()), *TEXTS_READ),
    "string views": (pa.array(["a", "\u00e9", None], pa.string_view()), *TEXTS_READ),
    "binary": (pa.array(TWO, pa.binary()), *TEXTS_READ),
    "large binary": (pa.array(TWO, pa.large_binary()), *TEXTS_READ),
    "binary views": (pa.array(TWO, pa.binary_view()), *TEXTS_READ),
    "fixed binary": (pa.array([b"ab", b"cd", None], pa.binary(2)), None, [b"ab", b"cd", None]),
    "a dictionary": (pa.array(["a", "\u00e9", None]).dictionary_encode(), *TEXTS_READ),
    "UUIDs": (
        pa.array([each and each.bytes for each in UUIDS], pa.uuid()),
        None,
        [each and str(each).encode() for each in UUIDS],
    ),
    "dates": (pa.array([each and each.date() for each in MOMENTS]), None, [b"2026-01-02", b"2026-12-31", None]),
    "times": (
        pa.array(MOMENTS, pa.timestamp("s")),
        None,
        [b"2026-01-02 03:04:05", b"2026-12-31 00:00:00", None],
    ),
}


@pytest.mark.parametrize("name", PARQUET_TYPES)
def test_a_type_of_parquet_is_read_as_numbers_and_as_texts(tmp_path, name):
    values, numbers, texts = PARQUET_TYPES[name]
    pa.parquet.write_table(
        pa.table({"y": [1, 0, 1], "n": values, "c": values, "tags": values}), tmp_path / "log.parquet"
    )
    rows, rejects = read(tmp_path / "log.parquet", spec(FEATURES[1:], format="parquet"))
    assert [row[1] for row in rows] == [row[2] for row in rows] == texts and not rejects
    rows, rejects = read(tmp_path / "log.parquet", spec(FEATURES[:1], format="parquet"))
    if numbers is not None:
        assert [row[1] for row in rows] == numbers and not rejects
    else:
        assert [row[1] for row in rows] == [None] and [line for line, _ in rejects] == [1, 2]


LISTS = {
    "strings": (pa.array([["p", "q"], [], None]), [b"p|q", None, None]),
    "large lists": (pa.array([["p", "q"], [], None], pa.large_list(pa.large_string())), [b"p|q", None, None]),
    "list views": (pa.array([["p", "q"], [], None], pa.list_view(pa.string())), [b"p|q", None, None]),
    "fixed size": (pa.array([["p", "q"], ["r", "s"], ["t", "u"]], pa.list_(pa.string(), 2)), [b"p|q", b"r|s", b"t|u"]),
    "half floats": (pa.array([[1.5, 2.0], [], None], pa.list_(pa.float16())), [b"1.5|2", None, None]),
    "decimals": (pa.array([[Decimal("1.5")], [], None]), [b"1.5", None, None]),
    "large binary": (pa.array([[b"p"], [], None], pa.list_(pa.large_binary())), [b"p", None, None]),
    "nulls": (pa.array([[None], [], None]), [None, None, None]),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_a_type_of_parquet_are_joined(tmp_path, name):
    values, texts = LISTS[name]
    pa.parquet.write_table(pa.table({"y": [1, 0, 1], "tags": values}), tmp_path / "log.parquet")
    rows, rejects = read(tmp_path / "log.parquet", spec(FEATURES[2:], format="parquet"))
    assert [row[1] for row in rows] == texts and not rejects


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([{"x": 1}, None]), r"struct<x: int64>"),
        (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())), r"map<string, int64"),
        (pa.array([[["a"]], None]), r"list<element: list<element: string>>"),
        (pa.array([[{"x": 1}], None]), r"list<element: struct<x: int64>>"),
        (pa.array([["p", "q"], None], pa.list_(pa.string(), 2)), r"fixed_size_list<element: string>\[2\]"),
    ],
)
def test_a_type_of_parquet_that_is_not_read_is_named_with_its_column(tmp_path, values, kind):
    pa.parquet.write_table(pa.table({"y": [1, 0], "tags": values}), tmp_path / "log.parquet")
    with pytest.raises(InputError, match=rf"column tags of type {kind}.* cannot be read .*; write "):
        read(tmp_path / "log.parquet", spec(FEATURES[2:], format="parquet"))


@pytest.mark.parametrize(("values", "said"), [("2026-11-01", ()), ("2026-11-02", ("2026-11-02", "2026-11-01"))])
def test_a_column_that_its_folder_hides_is_said_where_the_values_differ(tmp_path, values, said):
    folder = tmp_path / "day=2026-11-01"
    folder.mkdir()
    (folder / "log.csv").write_text(f"click,day\n1,{values}\n0,{values}\n")
    sample = read_sample(str(folder / "log.csv"))
    assert sample.columns["day"] == ["2026-11-01"] * 2
    assert len(sample.unsure) == bool(said) and all(word in sample.unsure[0] for word in said)
