"""Nested objects, JSON arrays, ORC and Avro: the same rows from every format, whole and in parts."""

import datetime
import decimal
import gzip
import json
import uuid

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.transforms.log.ingest import ingest
from ctrpipe.transforms.log.nested import column_of, field_of, leaf_names, leaves
from ctrpipe.transforms.log.payload import payload_files, read_payload
from ctrpipe.transforms.log.readers import LogReader, plan
from ctrpipe.transforms.log.sample import read_sample
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.split import SPLITS

FEATURES = [
    {"kind": "numeric", "columns": ["ad.bid.price"]},
    {"kind": "categorical", "columns": ["ad.campaign", "user"]},
    {"kind": "multivalent", "columns": ["tags", "items.id"], "max_length": 3},
]
NAMES = ["ad.bid.price", "ad.campaign", "user", "tags", "items.id", "y"]
RECORDS = [
    {
        "y": 1,
        "user": "é",
        "ad": {"campaign": 7, "bid": {"price": 1.5}},
        "tags": ["a", "b"],
        "items": [{"id": 1}, {"id": 2}],
    },
    {"y": 0, "user": None, "ad": None, "tags": [], "items": None},
    {"y": 0, "user": 'x"]}\\', "ad": {"campaign": None, "bid": None}, "tags": None, "items": [{"id": 3}]},
    {"y": 1, "user": "u", "ad": {"campaign": 7, "bid": {"price": None}}, "tags": ["c"], "items": []},
]
ROWS = [
    (1.5, b"7", "é".encode(), b"a|b", b"1|2", 1.0),
    (None, None, None, None, None, 0.0),
    (None, None, b'x"]}\\', None, b"3", 0.0),
    (None, b"7", b"u", b"c", None, 1.0),
]
AVRO = {
    "type": "record",
    "name": "row",
    "fields": [
        {"name": "y", "type": "int"},
        {"name": "user", "type": ["null", "string"]},
        {
            "name": "ad",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "ad",
                    "fields": [
                        {"name": "campaign", "type": ["null", "long"]},
                        {
                            "name": "bid",
                            "type": [
                                "null",
                                {
                                    "type": "record",
                                    "name": "bid",
                                    "fields": [{"name": "price", "type": ["null", "float"]}],
                                },
                            ],
                        },
                    ],
                },
            ],
        },
        {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
        {
            "name": "items",
            "type": [
                "null",
                {
                    "type": "array",
                    "items": {"type": "record", "name": "item", "fields": [{"name": "id", "type": "long"}]},
                },
            ],
        },
    ],
}


def spec(features=FEATURES, **data) -> LogSpec:
    return LogSpec.model_validate({"data": {"labels": {"ctr": "y"}, **data}, "features": features})


def read(path, log, names=NAMES):
    """Returns the rows and rejects of a file, with their lines, read by ranges, and the number of ranges."""
    rows, rejects = [], []
    parts = plan([str(path)], log)
    for part in parts:
        for batch in LogReader(log).read_range(part):
            values = batch.rows.select(names).to_pylist()
            rows += [(line, *row.values()) for line, row in zip(batch.lines.tolist(), values, strict=True)]
            rejects += [(reject.line, reject.reason) for reject in batch.rejects]
    return rows, rejects, len(parts)


def as_lines(path, records):
    path.write_text("\n".join(map(json.dumps, records)))


def as_array(path, records):
    path.write_text(json.dumps(records))


def as_indented_array(path, records):
    path.write_text(" \n" + json.dumps(records, indent=2) + "\n\n")


def as_parquet(path, records):
    pa.parquet.write_table(pa.Table.from_pylist(records), path, row_group_size=2)


def as_orc(path, records):
    pa.orc.write_table(pa.Table.from_pylist(records), path)


def as_avro(path, records, codec="deflate"):
    with open(path, "wb") as file:
        fastavro.writer(file, AVRO, records, codec=codec, sync_interval=1)


WRITERS = {
    "jsonl": ("jsonl", as_lines),
    "json": ("json", as_array),
    "indented json": ("json", as_indented_array),
    "parquet": ("parquet", as_parquet),
    "orc": ("orc", as_orc),
    "avro": ("avro", as_avro),
}


@pytest.mark.parametrize("kind", WRITERS)
def test_every_format_has_the_same_rows_whole_and_in_parts(tmp_path, monkeypatch, kind):
    form, write = WRITERS[kind]
    path = tmp_path / "log"
    write(path, RECORDS)
    rows, rejects, _ = read(path, spec(format=form))
    assert [row[1:] for row in rows] == ROWS and not rejects
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 1)
    monkeypatch.setattr("ctrpipe.transforms.log.formats.json_array.CHUNK_BYTES", 40)
    in_parts, _, parts = read(path, spec(format=form))
    assert in_parts == rows and parts == {"orc": 1, "parquet": 2}.get(kind, 4)
    if form in ("parquet", "orc", "avro"):
        assert [row[0] for row in rows] == [1, 2, 3, 4]
        assert LogReader(spec(format=form)).row_count(str(path)) == 4


@pytest.mark.parametrize("kind", WRITERS)
def test_a_first_look_flattens_objects_and_says_so(tmp_path, kind):
    form, write = WRITERS[kind]
    write(tmp_path / "log", RECORDS)
    sample = read_sample(str(tmp_path / "log"))
    assert sample.data == {"format": form} and sample.lists == {"tags", "items.id"}
    assert set(sample.columns) == set(NAMES) and sample.columns["ad.campaign"] == ["7", "", "", "7"]
    assert sample.columns["items.id"] == ["1|2", "", "3", ""]
    assert sample.unsure[-1].startswith("Nested objects are flattened: ad.campaign is the field campaign of ad")


def test_a_first_look_says_which_texts_it_leaves_out(tmp_path):
    as_lines(
        tmp_path / "log", [{"y": 1, "ad": {"c": 7}}, {"y": 0, "ad": None}, {"y": 0, "ad": "t"}, {"y": 0, "ad": {}}]
    )
    sample = read_sample(str(tmp_path / "log"))
    assert set(sample.columns) == {"y", "ad.c"}
    assert sample.unsure[0] == "ad is left out: it is 't' in some rows, and has the field ad.c in others."


@pytest.mark.parametrize("kind", WRITERS)
def test_the_first_bytes_decide_between_the_formats(tmp_path, kind):
    """A model of one format scores the files of another that names its columns."""
    form, write = WRITERS[kind]
    write(tmp_path / "log", RECORDS)
    others = ["jsonl", "json"] if form in ("jsonl", "json") else ["jsonl", "json", "parquet", "orc", "avro"]
    for other in others:
        assert [row[1:] for row in read(tmp_path / "log", spec(format=other))[0]] == ROWS


def test_a_whole_log_is_ingested_in_parallel(tmp_path, monkeypatch):
    """Splits, dead letters and row numbers are right where several processes read parts of an array."""
    records = [{"y": n % 2, "n": n, "c": {"d": f"v{n % 7}"}} for n in range(2000)]
    records[1234]["n"] = "x"
    (tmp_path / "log.json").write_text(json.dumps(records, indent=0))
    features = [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c.d"]}]
    log = spec(features, format="json")
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 10_000)
    monkeypatch.setattr("ctrpipe.transforms.log.formats.json_array.CHUNK_BYTES", 1000)
    folders = {name: tmp_path / name for name in SPLITS}
    for folder in folders.values():
        folder.mkdir()
    ingest(log, [str(tmp_path / "log.json")], 1, folders, tmp_path, Workers(processes=1))
    numbers = [
        value
        for name in SPLITS
        for batch in read_payload(payload_files(folders[name]))
        for value in batch["n"].to_pylist()
    ]
    assert numbers == [float(n) for n in range(2000) if n != 1234]
    [reject] = map(json.loads, (tmp_path / "rejects.jsonl").read_text().splitlines())
    assert reject["line"] == (tmp_path / "log.json").read_text().split('"x"')[0].count("\n") - 1  # the object's first


# JSON ----------------------------------------------------------------------------------------------------------------


def test_a_field_is_found_by_every_division_of_its_name():
    values = {
        "a": {"b": {"c": 1}, "b.c": 2, "d.e": {"f": 3}},
        "a.b.c": 4,
        "n": None,
        "l": [{"x": {"y": 1}}, {"x": None}, {}],
    }
    assert field_of(values, "a.b.c") == 4
    assert field_of(values["a"], "b.c") == 2
    assert field_of(values, "a.d.e.f") == 3
    assert field_of(values, "n.x") is None
    assert field_of(values, "l.x.y") == [1, None, None]
    assert dict(leaves(values)) == {
        "a.b.c": 4,
        "a.d.e.f": 3,
        "n": None,
        "l.x.y": [1, None, None],
        "l.x": [{"y": 1}, None, None],
    }


FIELD = [{"kind": "categorical", "columns": ["a.b"]}]


def test_a_column_with_dots_in_its_own_name_comes_first(tmp_path):
    as_parquet(tmp_path / "log", [{"y": 1, "a.b": "own", "a": {"b": "nested"}}])
    assert read(tmp_path / "log", spec(FIELD, format="parquet"), ["a.b"])[0] == [(1, b"own")]


def test_a_row_of_json_with_two_values_of_a_name_is_malformed(tmp_path):
    lines = [
        '{"y": 1, "a.b": "own", "a": {"b": "nested"}}',
        '{"y": 1, "a.b": "same", "a": {"b": "same", "c": 1, "c": 2}, "z": 1, "z": 2}',  # c and z are not read
        '{"y": 1, "a.b": null, "a": {"b": "hidden"}}',
        '{"y": 1, "a.b": "x", "a": {"b": null}}',
        '{"y": 1, "a": {"b": "x", "b": "y"}}',
        '{"y": 1, "a": {"b": "x"}, "a": {"c": "y"}}',
        '{"y": 1, "y": 0, "a": {"b": "x", "b": "x"}}',
    ]
    (tmp_path / "log").write_text("\n".join(lines))
    rows, rejects, _ = read(tmp_path / "log", spec(FIELD, format="jsonl"), ["a.b"])
    assert rows == [(2, b"same"), (4, b"x")]
    assert dict(rejects) == {
        1: "a.b: is a key, and a field of an object with another value",
        3: "a.b: is a key, and a field of an object with another value",
        5: "b is twice in its object, with different values",
        6: "a is twice in its object, with different values",
        7: "y is twice in its object, with different values",
    }


def mixture_of(path, features, records):
    as_lines(path, records)
    reader = LogReader(spec(features, format="jsonl"))
    list(reader.read(str(path)))
    return reader.mixture()


def test_a_text_in_the_place_of_an_object_is_said(tmp_path):
    path, whole = tmp_path / "log", {"y": 1, "a": {"b": "x"}}
    missing = [{"y": 0}, {"y": 0, "a": None}, {"y": 0, "a": ""}, {"y": 0, "a": {}}, {"y": 0, "a.b": "own", "a": "t"}]
    mixture_of(path, FIELD, [whole, *missing]).check()
    mixture_of(path, FIELD, [{"y": 0, "a": "t"}, {"y": 0, "a.b": "own"}]).check()  # keys with dots, without objects
    with pytest.raises(InputError, match=f"^{path}: line 1: a is 't', and an object in line 3: a.b would be missing"):
        mixture_of(path, FIELD, [{"y": 0, "a": "t"}, {"y": 0, "a": {}}, whole]).check()
    several = [{"kind": "multivalent", "columns": ["l.b"], "max_length": 2}]
    with pytest.raises(InputError, match=f"^{path}: line 1: l is '7', and an object in line 1: l.b would be missing"):
        mixture_of(path, several, [{"y": 0, "l": [{"b": 1}, 7]}]).check()


def test_a_malformed_last_row_is_no_row_with_a_number(tmp_path):
    features = [*FIELD, {"kind": "categorical", "columns": ["c", "d"]}]
    found = mixture_of(tmp_path / "log", features, [{"y": 0}, {"y": 0, "c": 5, "a": {"b": "x"}, "d": ["e"]}])
    assert not found.numbers and not found.fields


ELEMENTS = [
    '{"y": 1, "n": 1}',
    "3",
    '"a, {text}"',
    '{"y": 1 "n": 2}',
    "[1, [2]]",
    '{"y": 0, "n": [1]}',
    '{"y": 2}',
    '{"y": 0, "n": 8, "s": "\\\\\\"]}{["}',
]
REASONS = {
    2: "expected a JSON object",
    3: "expected a JSON object",
    4: "not valid JSON (Expecting ',' delimiter, column 9)",
    5: "expected a JSON object",
    6: "n: expected one value, found a list",
    7: "y: the label must be 0 or 1, found '2'",
}


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_malformed_objects_of_an_array_have_their_line(tmp_path, monkeypatch, size, end, packed):
    monkeypatch.setattr("ctrpipe.transforms.log.formats.json_array.CHUNK_BYTES", size)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 10)
    text = f"\ufeff[{f',{end}'.join(ELEMENTS)}{end}]{end}".encode()
    (tmp_path / "log.json").write_bytes(gzip.compress(text) if packed else text)
    log = spec([{"kind": "numeric", "columns": ["n"]}], format="json")
    rows, rejects, _ = read(tmp_path / "log.json", log, ["n", "y"])
    assert rows == [(1, 1.0, 1.0), (8, 8.0, 0.0)] and dict(rejects) == REASONS


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"y": 1}, {"y": 0}', "the JSON array is not closed; copy or write the file again"),
        ('[{"y": 1},\n\n{"y": 0, "a": {"b": 1}\n]', "line 3: an object does not end; correct it"),
        ('[{"y": 1},\n{"y": "0}\n]', "line 2: an object does not end"),
        ('[{"y": 1}]\n[{"y": 0}]', "line 1: a bracket closes nothing"),
        ("[]", "the file has no rows"),
        (" [ \n ] ", "the file has no rows"),
        ("", "the file has no rows"),
        ("y\tn\n1\t2\n", "not a JSON array, but data.format is json"),
    ],
)
def test_an_array_that_is_none_is_refused_in_one_line(tmp_path, text, message, packed):
    path = tmp_path / "log.json"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(InputError, match=message) as error:
        read(path, spec([{"kind": "numeric", "columns": ["n"]}], format="json"), ["n"])
    assert str(path) in str(error.value) and "\n" not in str(error.value)


# Columns -------------------------------------------------------------------------------------------------------------


def test_fields_of_arrow_columns_are_found_and_null_where_a_struct_is():
    inner = pa.struct([("b", pa.int64()), ("c", pa.list_(pa.struct([("d", pa.string())])))])
    values = [{"b": 1, "c": [{"d": "x"}, None]}, None, {"b": None, "c": None}]
    batch = pa.record_batch({"a": pa.array(values, inner)})
    assert list(leaf_names(batch.schema)) == ["a.b", "a.c.d"]
    assert column_of(batch, "a.b").to_pylist() == [1, None, None]
    assert column_of(batch, "a.c.d").to_pylist() == [["x", None], [], []]
    sliced = batch.slice(1)
    assert column_of(sliced, "a.b").to_pylist() == [None, None]
    with pytest.raises(KeyError):
        column_of(batch, "a.x")


def test_a_field_that_is_not_there_is_named(tmp_path):
    as_orc(tmp_path / "log.orc", RECORDS)
    with pytest.raises(
        InputError, match="the header lacks ad.color, which the configuration names; it has y, user, ad"
    ):
        read(tmp_path / "log.orc", spec([{"kind": "categorical", "columns": ["ad.color"]}], format="orc"), [])


def test_a_struct_itself_is_no_value(tmp_path):
    as_orc(tmp_path / "log.orc", RECORDS)
    with pytest.raises(InputError, match="column ad of type struct.* cannot be read as a value per row"):
        read(tmp_path / "log.orc", spec([{"kind": "categorical", "columns": ["ad"]}], format="orc"), [])


def test_stripes_of_orc_are_ranges_with_their_rows(tmp_path, monkeypatch):
    table = pa.table({"y": np.arange(50_000) % 2, "n": np.arange(50_000.0)})
    pa.orc.write_table(table, tmp_path / "log.orc", stripe_size=1 << 16)
    monkeypatch.setattr("ctrpipe.transforms.log.files.RANGE_BYTES", 100_000)
    log = spec([{"kind": "numeric", "columns": ["n"]}], format="orc")
    rows, _, parts = read(tmp_path / "log.orc", log, ["n"])
    assert parts > 2 and rows == [(line, float(line - 1)) for line in range(1, 50_001)]


@pytest.mark.parametrize("kind", ["orc", "avro"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:-20], lambda data: data[:40], lambda data: data[:-60] + bytes(60)]
)
def test_a_damaged_file_of_columns_is_one_line(tmp_path, kind, damage):
    path = tmp_path / f"log.{kind}"
    WRITERS[kind][1](path, RECORDS * 50)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        InputError, match=rf"log\.{kind}: (not a readable (ORC|Avro) file|the Avro file is damaged)"
    ) as error:
        read(path, spec(format=kind))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["orc", "avro", "parquet"])
def test_a_compressed_file_of_columns_is_refused_by_name(tmp_path, kind):
    path = tmp_path / "log.gz"
    WRITERS[kind][1](path, RECORDS)
    path.write_bytes(gzip.compress(path.read_bytes()))
    name = {"orc": "ORC", "avro": "Avro", "parquet": "Parquet"}[kind]
    with pytest.raises(InputError, match=f"a compressed {name} file, which is not supported; decompress it"):
        read(path, spec(format="jsonl"))
    with pytest.raises(InputError, match=f"a gzip file, but data.format is {kind}"):
        read(path, spec(format=kind))


# Avro ----------------------------------------------------------------------------------------------------------------

MOMENT = datetime.datetime(2026, 11, 1, 5, 30, tzinfo=datetime.UTC)
ID = uuid.UUID(int=1 << 70)
ANY = [  # a type of Avro, a value, and what the same value of a text would be
    ("boolean", True, b"1"),
    ("float", 0.1, b"0.1"),
    (["null", "int", "double"], 2, b"2"),
    (["null", "int", "double"], 2.5, b"2.5"),
    (["string", "int"], 7, b"7"),
    (["string", "int"], "seven", b"seven"),
    (["null"], None, None),
    ("bytes", b"ab", b"ab"),
    ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, "B", b"B"),
    ({"type": "fixed", "name": "f", "size": 2}, b"xy", b"xy"),
    ({"type": "long", "logicalType": "timestamp-millis"}, MOMENT, b"2026-11-01 05:30:00Z"),
    ({"type": "int", "logicalType": "date"}, MOMENT.date(), b"2026-11-01"),
    ({"type": "string", "logicalType": "uuid"}, ID, str(ID).encode()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        decimal.Decimal("12.50"),
        b"12.5",
    ),
    ({"type": "array", "items": ["null", "string"]}, ["a", None, "b"], b"a|b"),
    ({"type": "array", "items": {"type": "string", "logicalType": "uuid"}}, [ID], str(ID).encode()),
]


@pytest.mark.parametrize(("kind", "value", "text"), ANY, ids=range(len(ANY)))
def test_values_of_avro_have_the_text_of_the_same_values_in_parquet(tmp_path, kind, value, text):
    fields = [{"name": "y", "type": "int"}, {"name": "v", "type": kind}]
    with open(tmp_path / "log.avro", "wb") as file:
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, [{"y": 1, "v": value}])
    read_as = "multivalent" if isinstance(kind, dict) and kind["type"] == "array" else "categorical"
    options = {"max_length": 3} if read_as == "multivalent" else {}
    log = spec([{"kind": read_as, "columns": ["v"], **options}], format="avro")
    assert read(tmp_path / "log.avro", log, ["v"])[0] == [(1, text)]


def test_avro_whose_rows_are_no_records_is_refused(tmp_path):
    with open(tmp_path / "log.avro", "wb") as file:
        fastavro.writer(file, "int", [1, 2])
    with pytest.raises(
        InputError, match="an Avro file of int; its rows must be records|an Avro file of .int.; its rows"
    ):
        read(tmp_path / "log.avro", spec(format="avro"))


def test_a_type_within_itself_is_left_to_text(tmp_path):
    tree = {
        "type": "record",
        "name": "tree",
        "fields": [{"name": "id", "type": "int"}, {"name": "left", "type": ["null", "tree"]}],
    }
    fields = [{"name": "y", "type": "int"}, {"name": "t", "type": tree}]
    with open(tmp_path / "log.avro", "wb") as file:
        rows = [{"y": 1, "t": {"id": 1, "left": {"id": 2, "left": None}}}]
        fastavro.writer(file, {"type": "record", "name": "row", "fields": fields}, rows)
    log = spec([{"kind": "categorical", "columns": ["t.id", "t.left"]}], format="avro")
    assert read(tmp_path / "log.avro", log, ["t.id", "t.left"])[0] == [(1, b"1", b'{"id": 2, "left": null}')]


def test_without_its_library_avro_names_the_extra(tmp_path, monkeypatch):
    as_avro(tmp_path / "log.avro", RECORDS)
    monkeypatch.setattr("ctrpipe.common.extras.is_installed", lambda module: module != "fastavro")
    with pytest.raises(
        InputError, match=r"an Avro file needs the extra avro .*pip install 'ctrpipe\[avro\]', or write"
    ):
        read(tmp_path / "log.avro", spec(format="avro"))


@pytest.mark.parametrize("codec", ["null", "snappy", "zstandard", "bzip2"])
def test_the_codecs_of_avro_are_read(tmp_path, codec):
    as_avro(tmp_path / "log.avro", RECORDS, codec)
    assert [row[1:] for row in read(tmp_path / "log.avro", spec(format="avro"))[0]] == ROWS
