"""Columns of vectors: read from every format, refused where one is not whole, scaled and packed as numpy does."""

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.transforms.features.analyzers import LogCounter
from ctrpipe.transforms.features.learned import Learned
from ctrpipe.transforms.features.pack_rows import pack_rows
from ctrpipe.transforms.features.preprocessing import layout
from ctrpipe.transforms.features.transform import analyze, load_graph
from ctrpipe.transforms.log import payload
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.kinds.guess import ColumnSample
from ctrpipe.transforms.log.kinds.vector import Vector
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema, read_payload
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.schema import raw_schema
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import as_lists, from_array, vector_array

TRANSFORMS = ("none", "unit", "standardize")
LARGEST = float(np.finfo(np.float32).max)


def spec(file_format: str = "parquet", length: int = 3, **more) -> LogSpec:
    data = {"format": file_format, "header": file_format in ("csv", "tsv"), "labels": {"ctr": "click"}}
    feature = {"kind": "vector", "columns": ["v"], "length": length, **more.pop("feature", {})}
    return LogSpec.model_validate({"data": {**data, **more}, "features": [feature]})


def read(path, log: LogSpec, labels: bool = True) -> tuple[list[list[float] | None], list[str]]:
    (batch,) = LogReader(log, labels=labels).read(str(path))
    assert batch.rows["v"].type == pa.binary(4 * log.vector_lengths["v"])
    return as_lists(batch.rows["v"]).to_pylist(), [f"{reject.line}: {reject.reason}" for reject in batch.rejects]


def write_parquet(path, vectors: pa.Array) -> None:
    pa.parquet.write_table(pa.table({"click": np.arange(len(vectors)) % 2, "v": vectors}), path)


@pytest.mark.parametrize(
    "kind",
    [
        *(pa.list_(number) for number in (pa.float16(), pa.float32(), pa.float64(), pa.int8(), pa.int64())),
        pa.large_list(pa.float32()),
        pa.list_(pa.float32(), 3),
        pa.list_(pa.string()),
    ],
    ids=str,
)
def test_lists_of_parquet_are_vectors_whatever_holds_their_numbers(tmp_path, kind):
    numbers = [[1, -2, 3], [0, 0, 0], [4, 5, 6]]
    given = [[str(one) for one in row] for row in numbers] if kind.value_type == pa.string() else numbers
    if pa.types.is_float16(kind.value_type):
        given = [np.array(row, np.float16) for row in numbers]
    write_parquet(tmp_path / "log.parquet", pa.array(given, kind))
    assert read(tmp_path / "log.parquet", spec()) == ([[1, -2, 3], [0, 0, 0], [4, 5, 6]], [])


def test_a_vector_is_whole_and_finite_or_missing(tmp_path):
    nan, inf = math.nan, math.inf
    vectors = [[1, 2, 3], [1, 2], None, [], [nan, nan, nan], [1, nan, 3], [1, None, 3], [1, 2, inf], [1, 2, 1e300]]
    write_parquet(tmp_path / "log.parquet", pa.array(vectors, pa.list_(pa.float64())))
    found, reasons = read(tmp_path / "log.parquet", spec())
    assert found == [[1, 2, 3], None, None, None]
    assert reasons == [
        "2: v: a vector has 3 numbers, found 2",
        "6: v: element 2 of the vector is missing; a vector is whole or missing",
        "7: v: element 2 of the vector is missing; a vector is whole or missing",
        "8: v: 'inf' in a vector is not finite, or too large for a 32-bit float",
        "9: v: '1e+300' in a vector is not finite, or too large for a 32-bit float",
    ]
    found, reasons = read(tmp_path / "log.parquet", spec(), labels=False)  # rows to score, as a server takes them
    assert found == [[1, 2, 3], None, None, None, [1, 2, pytest.approx(LARGEST)], [1, 2, pytest.approx(LARGEST)]]
    assert [reason[0] for reason in reasons] == ["2", "6", "7"]


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("0.5|-1e-3|7", {}),
        ('"[0.5, -1e-3, 7]"', {"separator": ","}),
        ("  [0.5   -1e-3 7 ]", {"separator": " "}),
        ("0.5 ; -1e-3;+7", {"separator": ";"}),
        ('"0,5|-1e-3|7"', {"decimal": ","}),
    ],
)
def test_text_is_a_vector_with_and_without_brackets(tmp_path, text, more):
    feature = {"separator": more["separator"]} if "separator" in more else {}
    data = {"decimal": more["decimal"]} if "decimal" in more else {}
    rows = [text, "", "NULL", "nan|nan|nan"] if not feature else [text, "", "NULL", "[]"]
    (tmp_path / "log.csv").write_text("click,v\n" + "".join(f"{n % 2},{row}\n" for n, row in enumerate(rows)))
    found, reasons = read(tmp_path / "log.csv", spec("csv", feature=feature, **data))
    assert found == [[0.5, pytest.approx(-1e-3), 7], None, None, None] and reasons == []


def test_text_that_is_no_vector_is_refused_in_one_line(tmp_path):
    rows = ["1|2", "1|2|3|4", "1|x|3", "1||3", "1|2|1e99", "7", "1|2|inf"]
    (tmp_path / "log.csv").write_text("click,v\n" + "".join(f"{n % 2},{row}\n" for n, row in enumerate(rows)))
    found, reasons = read(tmp_path / "log.csv", spec("csv"))
    assert found == [] and reasons == [
        "2: v: a vector has 3 numbers, found 2",
        "3: v: a vector has 3 numbers, found 4",
        "4: v: 'x' is not a number",
        "5: v: element 2 of the vector is missing; a vector is whole or missing",
        "6: v: '1e99' is too large for a 32-bit float",
        "7: v: a vector has 3 numbers, found 1",
        "8: v: 'inf' is not a number",
    ]


def test_lists_of_json_lines_are_vectors(tmp_path):
    values = [[1, 2.5, -3e-2], ["1", "2", "3"], None, [], [1, None, 3], [1, [2], 3], {"a": 1}, "1|2|3", [1, 2]]
    lines = [json.dumps({"click": n % 2, "v": value}) for n, value in enumerate(values)]
    (tmp_path / "log.jsonl").write_text("\n".join([*lines, '{"click": 1}']) + "\n")
    found, reasons = read(tmp_path / "log.jsonl", spec("jsonl"))
    assert found == [[1, 2.5, pytest.approx(-0.03)], [1, 2, 3], None, None, [1, 2, 3], None]
    assert reasons == [
        "5: v: element 2 of the vector is missing; a vector is whole or missing",
        "6: v: expected one value, found a list",
        "7: v: expected one value, found an object",
        "9: v: a vector has 3 numbers, found 2",
    ]


def test_lists_of_other_things_are_no_vectors(tmp_path):
    write_parquet(tmp_path / "log.parquet", pa.array([[True, False, True]], pa.list_(pa.bool_())))
    assert read(tmp_path / "log.parquet", spec())[1] == ["1: v: a vector of type bool has no numbers"]
    write_parquet(tmp_path / "log.parquet", pa.array([["1", "b", "3"]], pa.list_(pa.string())))
    assert read(tmp_path / "log.parquet", spec())[1] == ["1: v: 'b' is not a number"]


def test_checked_vectors_come_back_from_every_slice():
    vectors = np.random.default_rng(1).normal(size=(7, 5)).astype(np.float32)
    vectors[3] = math.nan
    column = from_array(vectors)
    assert column.null_count == 1
    for first, stop in itertools.combinations(range(8), 2):
        np.testing.assert_array_equal(vector_array(column.slice(first, stop - first)), vectors[first:stop])
        lists = as_lists(column.slice(first, stop - first)).to_pylist()
        expected = [None if math.isnan(row[0]) else row.tolist() for row in vectors[first:stop]]
        assert lists == expected
    np.testing.assert_array_equal(vector_array(pa.chunked_array([column, column])), np.concatenate([vectors] * 2))
    assert vector_array(pa.chunked_array([], pa.binary(20))).shape == (0, 5)


def test_long_vectors_are_written_in_smaller_parts(tmp_path, monkeypatch):
    """A part and a row group are in memory at once."""
    monkeypatch.setattr(payload, "_GROUP_BYTES", 3 * 20)
    vectors = np.arange(50, dtype=np.float32).reshape(10, 5)
    log = spec(length=5)
    rows = pa.RecordBatch.from_pydict({"v": from_array(vectors), "click": pa.array([0.0] * 10, pa.float32())})
    with PayloadWriter(tmp_path, "part", payload_schema(log)) as writer:
        writer.write(rows)
    groups = [pa.parquet.read_metadata(part).row_group(0).num_rows for part in writer.parts]
    assert groups == [3]  # four groups of three rows or fewer in one part
    back = pa.Table.from_batches(read_payload(writer.parts))
    np.testing.assert_array_equal(vector_array(back["v"]), vectors)


# The transform -------------------------------------------------------------------------------------------------------

TRAIN = np.random.default_rng(5).normal(3, 2, size=(60, 4)).astype(np.float32)
GRAPH_SPEC = LogSpec.model_validate(
    {
        "data": {"format": "parquet", "labels": {"ctr": "click"}},
        "features": [
            {"kind": "numeric", "columns": ["before"], "transform": "standardize"},
            *({"kind": "vector", "columns": [name], "length": 4, "transform": name} for name in TRANSFORMS[:2]),
            {"kind": "categorical", "columns": ["site"]},
            {"kind": "vector", "columns": ["standardize", "item"], "length": 4, "transform": "standardize"}
            | {"role": "item"},
            {"kind": "numeric", "columns": ["after"], "transform": "standardize"},
        ],
    }
)


def table(vectors: np.ndarray) -> pa.Table:
    count = len(vectors)
    columns = {name: from_array(vectors) for name in (*TRANSFORMS, "item")}
    numbers = pa.array(np.arange(count, dtype=np.float32))
    others = {"before": numbers, "after": numbers, "click": pa.array(np.zeros(count, np.float32))}
    return pa.table({**columns, **others, "site": pa.array([b"a", b"b"] * (count // 2), pa.binary())})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "train").mkdir()
    with PayloadWriter(folder / "train", "part", payload_schema(GRAPH_SPEC)) as writer:
        for batch in table(TRAIN).to_batches():
            writer.write(batch)
    analyze(GRAPH_SPEC, payload_files(folder / "train"), folder / "graph", Workers(processes=1))
    return folder


def expected(vectors: np.ndarray) -> dict[str, np.ndarray]:
    """Returns each transform of vectors, computed by numpy in float64."""
    wide = TRAIN.astype(np.float64)
    width = wide.max() - wide.min()
    missing = np.isnan(vectors).any(axis=1)
    values = np.clip(np.where(missing[:, None], 0, vectors.astype(np.float64)), wide.min() - width, wide.max() + width)
    values = np.where(missing[:, None], np.nan, values)
    lengths = np.linalg.norm(values, axis=1, keepdims=True)
    scaled = {
        "none": values,
        "unit": np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0),
        "standardize": (values - wide.mean()) / wide.std(),
    }
    return {name: np.where(missing[:, None], 0, each) for name, each in scaled.items()}


@pytest.mark.slow
def test_the_graph_scales_vectors_as_numpy_does(folder):
    """A vector of zeros, one of NaN, one that is partly NaN as a client may send, and elements beyond the range."""
    odd = np.zeros((6, 4), np.float32)
    odd[1], odd[2, 1], odd[3], odd[4, 0], odd[5, 3] = math.nan, math.nan, 1e30, -math.inf, math.inf
    vectors = np.concatenate([TRAIN[:4], odd])
    rows = table(vectors)
    raw = {name: vectors for name in (*TRANSFORMS, "item")}
    raw |= raw_arrays(rows.drop([*raw]).to_batches()[0], GRAPH_SPEC.model_copy(update={"features": [
        feature for feature in GRAPH_SPEC.features if feature.kind != "vector"
    ]}), labels=True)  # fmt: skip
    found = load_graph(folder / "graph")(raw)["dense"]
    assert found.shape == (10, 1 + 4 + 4 + 8 + 1) and np.isfinite(found).all()
    of = expected(vectors)
    np.testing.assert_allclose(found[:, 1:5], of["none"], rtol=1e-6)
    np.testing.assert_allclose(found[:, 5:9], of["unit"], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found[:, 9:13], of["standardize"], rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[:, 13:17], found[:, 9:13])
    np.testing.assert_allclose(np.linalg.norm(found[:4, 5:9], axis=1), 1, rtol=1e-6)
    # By distinct value, as a run and `score` pack, and row by row: the same bytes.
    whole = vectors[~np.isnan(vectors).any(axis=1) | np.isnan(vectors).all(axis=1)]
    packed = pack_rows(table(whole[:8]), GRAPH_SPEC, load_graph(folder / "graph"))
    again = np.concatenate([pack_rows(table(whole[i : i + 2]), GRAPH_SPEC, load_graph(folder / "graph"))["dense"]
                            for i in range(0, 8, 2)])  # fmt: skip
    for column in range(1, 17):
        np.testing.assert_array_equal(packed["dense"][:, column], again[:, column])


@pytest.mark.slow
def test_the_layout_has_a_vector_as_one_dense_feature(folder):
    features = layout(GRAPH_SPEC, lambda column, feature: 2)
    assert features.dense == ("before", "none", "unit", "standardize", "item", "after")
    assert features.widths == {"before": 1, "none": 4, "unit": 4, "standardize": 4, "item": 4, "after": 1}
    assert features.dense_width == 18 and features.item_dense == ("standardize", "item")
    assert FeatureMap.from_json(features.to_json()) == features
    sides = load_graph(folder / "graph")
    assert sides is not None


def test_a_warm_start_keeps_the_scale_of_its_parent(tmp_path):
    counter = LogCounter.of_log(GRAPH_SPEC)
    counter.add({name: table(TRAIN)[name].combine_chunks() for name in counter.columns})
    learned = Learned(GRAPH_SPEC, counter.summary(), tmp_path)
    wide = TRAIN.astype(np.float64)
    np.testing.assert_allclose(learned.numbers()["standardize"], [wide.mean(), wide.var()], rtol=1e-9)
    assert learned.numbers()["unit"].shape == (0,)
    width = np.ptp(wide)
    np.testing.assert_allclose(learned.limits()["none"], [wide.min() - width, wide.max() + width], rtol=1e-6)


def test_examples_and_schema_have_the_elements():
    vectors = np.array([[1, 2, 3], [math.nan] * 3], np.float32)
    rows = pa.RecordBatch.from_pydict({"v": from_array(vectors)})
    examples = [tf.train.Example.FromString(each) for each in to_examples(rows)]
    assert list(examples[0].features.feature["v"].float_list.value) == [1, 2, 3]
    assert not examples[1].features.feature
    (column,) = [feature for feature in raw_schema(spec()).feature if feature.name == "v"]
    assert (column.value_count.min, column.value_count.max) == (0, 3)


# A draft -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "is_list", "settings"),
    [
        (["0.1|0.2|1|3e-2", "", "1|2|3|4"], True, {"length": 4}),
        (["[0.1, 0.2, 1, 3]"] * 3, False, {"length": 4, "separator": ","}),
        (["[ 0.1 0.2  1 3]"] * 3, False, {"length": 4, "separator": " "}),
        (["1|2|3|4", "4|5|6|7"], True, None),  # ids
        (["0.1|0.2|1|3", "0.1|0.2"], True, None),
        (["0.1|0.2|1|x"] * 3, True, None),
        (["0.1|0.2"] * 3, True, {"length": 2}),
        (["[0.1,0.2,0.3]"] * 3, False, {"length": 3, "separator": ","}),
        (["0.1|0.2"] * 3, False, None),
    ],
)
def test_a_draft_knows_vectors_by_their_numbers(values, is_list, settings):
    guess = Vector.guess(ColumnSample("v", values, is_list))
    assert (guess.settings if guess else None) == (settings and {"kind": "vector", **settings})


def test_a_vector_is_not_carried_along_with_the_scores(tmp_path):
    data = {"format": "parquet", "labels": {"ctr": "y"}}
    spec = LogSpec.model_validate({"data": data, "features": [{"kind": "vector", "columns": ["e"], "length": 2}]})
    pa.parquet.write_table(pa.table({"e": [[1.0, 2.0]]}), tmp_path / "log.parquet")
    reader = LogReader(spec, labels=False, kept=["e"])
    with pytest.raises(InputError, match=r"--keep e: a column of type list.* has no value per row .*; leave it out"):
        list(reader.read(str(tmp_path / "log.parquet")))
