"""123.0 is read as 123 for a category, a key, a user or an item."""

import decimal
import json
import math

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ctrpipe.common.processes import Workers
from ctrpipe.data import files_of
from ctrpipe.serving.client.label_split import LabelSplit
from ctrpipe.transforms.features.transform import analyze, load_graph
from ctrpipe.transforms.labels.labelled import join_labels
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.sample import read_sample, spec_of_texts
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.whole_numbers import text_of_float, texts_of_floats


def spec(format: str, **feature) -> LogSpec:
    data = {"format": format, "labels": {"ctr": "y"}} | ({"header": True} if format == "csv" else {})
    features = [
        {"kind": "categorical", "columns": ["user"], **feature},
        {"kind": "multivalent", "columns": ["tags"], "max_length": 3, **feature},
        {"kind": "sequence", "columns": ["seen"], "max_length": 3, "shared_with": ["user"]},
    ]
    return LogSpec.model_validate({"data": data, "features": features})


def test_the_text_of_a_whole_number_is_its_digits():
    numbers = [0.0, -0.0, 5.0, -7.0, 20018000054.0, 2.0**53, -(2.0**53), 1e15]
    faults: dict[int, str] = {}
    assert texts_of_floats(pa.array(numbers), "c", faults).to_pylist() == [str(int(number)) for number in numbers]
    others = [0.1, 1e-5, -2.5, 1e15 + 0.5, 1 / 3, math.nan, None]
    found = texts_of_floats(pa.array([*others, 4.0]), "c", faults).to_pylist()
    assert found == [*map(repr, others[:5]), None, None, "4"] and not faults
    narrow = pa.array([0.1, 16777216.0, 1e-5], pa.float32())
    assert texts_of_floats(narrow, "c", faults).to_pylist() == ["0.1", "16777216", "1e-05"] and not faults


@pytest.mark.parametrize("text", ["0.1", "0.1234567891", "48.85661400000001", "1e-10", "16777217.5"])
def test_a_fraction_has_one_text_as_a_decimal_a_double_and_a_number_of_json(text, tmp_path):
    (tmp_path / "log.jsonl").write_text(f'{{"y": 1, "user": {text}, "tags": [], "seen": []}}\n')
    read = [*LogReader(spec("jsonl")).read(str(tmp_path / "log.jsonl"))]
    for number in (pa.array([float(text)]), pa.array([decimal.Decimal(text)], pa.decimal128(38, 17))):
        pq.write_table(pa.table({"y": [1], "user": number, "tags": [[]], "seen": [[]]}), tmp_path / "log.parquet")
        read += LogReader(spec("parquet")).read(str(tmp_path / "log.parquet"))
    assert {batch.rows["user"][0].as_py() for batch in read} == {repr(float(text)).encode()}


@pytest.mark.parametrize(
    ("number", "kind", "shown"),
    [
        (2.0**53 + 2, pa.float64(), "9007199254740994"),
        (-1e30, pa.float64(), "-1e+30"),
        (math.inf, pa.float64(), "inf"),
        (2.0**24 + 2, pa.float32(), "16777218"),
    ],
)
def test_a_number_that_is_no_exact_id_is_refused(number, kind, shown, tmp_path):
    values = pa.array([3, number], kind)
    columns = {"y": [0, 1], "user": values, "tags": pa.array([["a"], ["b"]]), "seen": pa.array([[], []])}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    (batch,) = LogReader(spec("parquet")).read(str(tmp_path / "log.parquet"))
    assert batch.rows["user"].to_pylist() == [b"3"]
    ((line, reason),) = [(reject.line, reject.reason) for reject in batch.rejects]
    assert line == 2 and reason.startswith(f"user: '{shown}") and "last exact id" in reason
    (batch,) = LogReader(spec("parquet", whole_numbers=False)).read(str(tmp_path / "log.parquet"))
    assert len(batch.rows) == 2 and float(batch.rows["user"][1].as_py()) == number


def test_an_element_of_a_list_is_refused_with_its_row(tmp_path):
    tags = pa.array([[1.0], [], [2.0, 1e17]])
    columns = {"y": [0, 1, 0], "user": [1, 2, 3], "tags": tags, "seen": pa.array([[], [5.0, None], []])}
    pq.write_table(pa.table(columns), tmp_path / "log.parquet")
    (batch,) = LogReader(spec("parquet")).read(str(tmp_path / "log.parquet"))
    assert [(reject.line, reject.reason[:15]) for reject in batch.rejects] == [(3, "tags: '1e+17' i")]
    assert batch.rows["tags"].to_pylist() == [b"1", None] and batch.rows["seen"].to_pylist() == [None, b"5|"]


ROWS = [("20018000054", "1|2.5", "7|20018000054"), ("", "2", ""), ("4", "", "4"), ("0.25", "3|1", "1")]


def test_every_format_reads_the_same_values(tmp_path):
    """Floats of Parquet, of pandas, of JSON and of text; an id that is missing made the column one of floats."""
    users = [20018000054.0, math.nan, 4.0, 0.25]
    tags, seen = [[1.0, 2.5], [2.0], [], [3.0, 1.0]], [[7.0, 20018000054.0], [], [4.0], [1.0]]
    frame = pd.DataFrame({"y": [0, 1, 0, 1], "user": users, "tags": tags, "seen": seen})
    objects = [{"y": 1, "user": 2.0018000054e10, "tags": [1.0, 2.50], "seen": [7.0, 20018000054]}]
    objects += [{"y": 0, "user": math.nan, "tags": 2.0}, {"y": 1, "user": 4.0, "seen": 4e0}]
    objects += [{"y": 1, "user": 0.250, "tags": "3.0|1.", "seen": [1.00]}]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in objects))
    lines = ["0,20018000054.0,1.0|2.5,7.0|20018000054.000", "1,,2.0,", "0,4.,,4", "1,0.25,3.0|1.0,1.0"]
    (tmp_path / "log.csv").write_text("\n".join(["y,user,tags,seen", *lines]) + "\n")
    files = {"parquet": files_of(frame, tmp_path)[0], "jsonl": tmp_path / "log.jsonl", "csv": tmp_path / "log.csv"}
    expected = [[value.encode() or None for value in column] for column in zip(*ROWS, strict=True)]
    for format, path in files.items():
        (batch,) = LogReader(spec(format)).read(str(path))
        assert not batch.rejects
        assert [batch.rows[name].to_pylist() for name in ("user", "tags", "seen")] == expected, format


def test_text_stays_as_it_is_where_the_configuration_says_so(tmp_path):
    (tmp_path / "log.csv").write_text("y,user,tags,seen\n1,4.0,4.0|4,4.0\n")
    (batch,) = LogReader(spec("csv", whole_numbers=False)).read(str(tmp_path / "log.csv"))
    assert [batch.rows[name][0].as_py() for name in ("user", "tags", "seen")] == [b"4.0", b"4.0|4", b"4.0"]


def test_the_lists_of_an_earlier_model_stay_as_they_were():
    described = spec("csv").model_dump()
    for feature in described["features"][1:]:
        del feature["whole_numbers"]
    described["features"][0]["whole_numbers"] = False
    assert LogSpec.of_model(json.dumps(described)).whole_number_columns == []
    assert LogSpec.of_model(spec("csv").model_dump_json()) == spec("csv")


def test_keys_users_and_items_are_compared_as_whole_numbers(tmp_path):
    log = pa.table({"id": [1.0, 20018000054.0, None], "price": [1e300, 0.5, 2.0], "site": ["a", "b", "c"]})
    pq.write_table(log, tmp_path / "log.parquet")
    (tmp_path / "labels.csv").write_text("id,click\n1.0,1\n20018000054,0\n")
    found = join_labels([str(tmp_path / "log.parquet")], [str(tmp_path / "labels.csv")], tmp_path / "joined", "id")
    (part,) = (tmp_path / "joined" / "log").glob("*.parquet")
    table = pq.read_table(part)
    assert found.rows == 2 and table.column_names == ["id", "price", "site", "click"]
    assert table["id"].to_pylist() == [b"1", b"20018000054"] and table["click"].to_pylist() == [b"1", b"0"]
    assert [float(price) for price in table["price"].to_pylist()] == [1e300, 0.5]
    sample = read_sample(str(tmp_path / "labels.csv"))
    (batch,) = LogReader(spec_of_texts(sample, ids=["id"]), labels=False).read(str(tmp_path / "labels.csv"))
    assert batch.rows["id"].to_pylist() == [b"1", b"20018000054"]


def test_a_client_s_key_is_the_same_as_a_whole_number():
    split = LabelSplit({"stable": 1, "canary": 1})
    assert all(split.choose(float(key)) == split.choose(key) == split.choose(str(key)) for key in range(50))
    assert {split.choose(key) for key in range(50)} == {"stable", "canary"}


@pytest.mark.slow
def test_a_request_of_whole_numbers_finds_the_ids_of_the_log(tmp_path):
    lines = [f"{row % 2},{row % 5},{row % 3}|{row % 4},{row % 5}" for row in range(60)]
    (tmp_path / "log.csv").write_text("\n".join(["y,user,tags,seen", *lines]) + "\n")
    log = spec("csv")
    with PayloadWriter(tmp_path, "part", payload_schema(log)) as writer:
        writer.write(next(LogReader(log).read(str(tmp_path / "log.csv"))).rows)
    analyze(log, payload_files(tmp_path), tmp_path / "graph", Workers(processes=1))
    run = load_graph(tmp_path / "graph")

    def ids(user: str, tags: str, seen: str) -> list[int]:
        columns = {"user": user.encode(), "tags": tags.encode(), "seen": seen.encode()}
        arrays = {name: np.array([value], object) for name, value in columns.items()}
        return run({**arrays, "y": np.zeros(1, np.float32)})["ids"][0].tolist()

    known = ids("4", "2|3", "1|4")
    assert ids("4.0", "2.0|3.", "1.000|4.0") == known and len(set(known[:3])) == 3
    assert ids("4.5", "2.0|3.1", "1|4") != known
    assert ids("-0.0", "-0.|3", "-0.0|4") == ids("0", "0|3", "0|4") and ids("-4.0", "2", "1") == ids("-4", "2", "1")


def test_a_fraction_of_32_bits_has_one_text_whatever_its_width(tmp_path):
    """A program that widens float32 writes 0.1 as 0.10000000149011612."""
    numbers = np.random.default_rng(3).normal(scale=[[1e-6], [1.0], [1e6]], size=(3, 50)).astype(np.float32).ravel()
    numbers = np.append(numbers, np.float32([0.1, 0.5, 16777215, 2.0**24, 1e-40]))
    wide = numbers.astype(np.float64)
    texts = texts_of_floats(pa.array(numbers), "c", {}).to_pylist()
    assert texts_of_floats(pa.array(wide), "c", {}).to_pylist() == texts == list(map(text_of_float, wide.tolist()))
    assert all(np.float32(text) == number for text, number in zip(texts, numbers, strict=True))
    pq.write_table(pa.table({"y": [0], "user": pa.array([0.1], pa.float32()), "tags": [[0.1]]}), tmp_path / "a.parquet")
    row = {"y": 0, "user": float(np.float32(0.1)), "tags": [float(np.float32(0.1))]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    (frame,) = files_of(pd.DataFrame([row]), tmp_path)
    described = spec("parquet").model_dump() | {"features": spec("parquet").model_dump()["features"][:2]}
    for path in (tmp_path / "a.parquet", tmp_path / "a.jsonl", frame):
        described["data"]["format"] = str(path).rpartition(".")[2]
        (batch,) = LogReader(LogSpec.model_validate(described)).read(str(path))
        assert (batch.rows["user"][0].as_py(), batch.rows["tags"][0].as_py()) == (b"0.1", b"0.1"), path


def test_zero_has_no_sign_in_any_format(tmp_path):
    frame = pd.DataFrame({"y": [0.0, 1.0], "user": [-0.0, -10.0], "tags": [[-0.0, 1.0], [-20.0]], "seen": [[0.0], []]})
    (tmp_path / "log.jsonl").write_text(
        '{"y": 0, "user": -0.0, "tags": [-0.0, 1.0], "seen": [0.0]}\n{"y": 1, "user": -10.0, "tags": "-20.0"}\n'
    )
    (tmp_path / "log.csv").write_text("y,user,tags,seen\n0,-0.0,-0.0|1.0,-0.00\n1,-10.0,-20.,\n")
    files = {"parquet": files_of(frame, tmp_path)[0], "jsonl": tmp_path / "log.jsonl", "csv": tmp_path / "log.csv"}
    for format, path in files.items():
        (batch,) = LogReader(spec(format)).read(str(path))
        read = [batch.rows[name].to_pylist() for name in ("user", "tags", "seen")]
        assert read == [[b"0", b"-10"], [b"0|1", b"-20"], [b"0", None]], format
