"""A model with vectors and weighted lists: REST, gRPC, examples, batch scoring and explanations give numpy's answer."""

import json
import math
import pathlib
import urllib.error
import urllib.request

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import tensorflow as tf
import tensorflow_transform as tft

from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.model import load
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.explain.explained_row import served_explanation
from ctrpipe.pipeline.explain.value_codes import LogCodes
from ctrpipe.pipeline.monitoring.statistics import generate_statistics
from ctrpipe.pipeline.training.tensorflow_learner import make_learner
from ctrpipe.serving.client import RestClient
from ctrpipe.serving.client.columns import to_arrays
from ctrpipe.serving.client.grpc_client import GrpcClient
from ctrpipe.serving.export.export import export
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.rows import Scorer
from ctrpipe.serving.scoring.score import score
from ctrpipe.serving.server import ServerOptions, running_server
from ctrpipe.serving.server.check import check_servable
from ctrpipe.serving.server.request_rows import write_rows
from ctrpipe.serving.server.row_cost import _example, measure
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.features.vocabulary_files import read_vocabularies
from ctrpipe.transforms.log.ingest import to_examples
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.raw_arrays import raw_arrays
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import from_array, vector_array

LENGTH, ROWS = 5, 40
SPEC = LogSpec.model_validate(
    {
        "data": {"format": "parquet", "labels": {"ctr": "click"}},
        "features": [
            {"kind": "categorical", "columns": ["site"]},
            {"kind": "vector", "columns": ["image vector", "v"], "length": LENGTH, "transform": "unit"},
            {"kind": "multivalent", "columns": ["tags"], "max_length": 3, "weights": ":", "pooling": "mean"},
        ],
    }
)
RANDOM = np.random.default_rng(4)
FIRST, SECOND = (RANDOM.normal(size=(ROWS, LENGTH)).astype(np.float32) for _ in range(2))
FIRST[3] = math.nan
SITES = [b"a", b"b"] * (ROWS // 2)
TAGS = {"t0": 0.7, "t1": -0.4, "t2": 0.2}  # the weight of each in the model
LISTS = [[(f"t{(row + k) % 3}", round(RANDOM.normal(), 3)) for k in range(row % 4)] for row in range(ROWS)]
TEXTS = ["|".join(f"{name}:{weight}" for name, weight in row) for row in LISTS]
BATCH = pa.RecordBatch.from_pydict(
    {
        "site": pa.array(SITES, pa.binary()),
        "image vector": from_array(FIRST),
        "v": from_array(SECOND),
        "tags": pa.array([text.encode() or None for text in TEXTS], pa.binary()),
        "click": pa.array([0.0, 1.0] * (ROWS // 2), pa.float32()),
    },
    payload_schema(SPEC),
)
FEATURES = BATCH.select(SPEC.feature_columns)
WEIGHTS = RANDOM.normal(size=(2 * LENGTH, 1)).astype(np.float32)


def of_tags() -> np.ndarray:
    """The mean weight of each row's tags, weighted by the size of their own weights; 0 without a tag."""
    sums = [(sum(TAGS[name] * w for name, w in row), sum(abs(w) for _, w in row)) for row in LISTS]
    return np.array([total / size if size else 0.0 for total, size in sums])


def probabilities() -> np.ndarray:
    """The logistic regression with WEIGHTS, TAGS and a weight of 0.5 for site b, in numpy."""
    units = []
    for vectors in (FIRST, SECOND):
        known = np.nan_to_num(vectors.astype(np.float64))
        lengths = np.linalg.norm(known, axis=1, keepdims=True)
        units.append(known / np.where(lengths > 0, lengths, 1))
    logits = np.concatenate(units, axis=1) @ WEIGHTS[:, 0] + 0.5 * np.array([site == b"b" for site in SITES])
    logits += of_tags()
    return 1 / (1 + np.exp(-logits))


def transform_assets(transform: tft.TFTransformOutput) -> pathlib.Path:
    return pathlib.Path(transform.transform_savedmodel_dir) / "assets"


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    (folder / "payload").mkdir()
    with PayloadWriter(folder / "payload", "train", payload_schema(SPEC)) as writer:
        writer.write(BATCH)
    analyze(SPEC, payload_files(folder / "payload"), folder / "graph", Workers(processes=1))
    transform = tft.TFTransformOutput(str(folder / "graph"))
    fields = feature_map(SPEC, transform)
    learner = make_learner(Model(name="lr"), Training(batch_size=64, distribution="one_device"), fields, 1)
    network = learner.network
    table = np.zeros(network.linear.table.shape, np.float32)
    table[fields.fields[0].offset + 2] = 0.5  # b before a, the later one by their bytes
    names = [value.decode() for value in read_vocabularies(transform_assets(transform), SPEC)["tags"].to_pylist()]
    for place, name in enumerate(names):
        table[fields.fields[1].offset + 2 + place] = TAGS[name]
    network.linear.table.assign(table)
    network.linear_dense.kernel.assign(WEIGHTS)
    network.linear_dense.bias.assign([0.0])
    export(network, transform, SPEC, fields, BATCH.slice(0, 4), folder / "models" / "1", {}, explains=True)
    return folder / "models" / "1"


@pytest.fixture(scope="module")
def server(version):
    with running_server(ServerOptions(version.parent, "ctr")) as addresses:
        yield addresses


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    vectors = {
        "image vector": [None if math.isnan(row[0]) else row.tolist() for row in FIRST],
        "v": SECOND.astype(np.float64).tolist(),
    }
    vectors["tags"] = pa.array([row or None for row in LISTS], pa.map_(pa.string(), pa.float64()))
    pa.parquet.write_table(pa.table({"click": [0, 1] * (ROWS // 2), "site": ["a", "b"] * (ROWS // 2), **vectors}), path)
    return path


def post(url: str, **body) -> dict:
    request = urllib.request.Request(url, json.dumps(body).encode())
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return json.load(error)


@pytest.mark.slow
def test_every_way_to_ask_gives_numpys_probability(version, server, log, tmp_path):
    expected = probabilities()
    raw = raw_arrays(FEATURES, SPEC)
    assert check_servable(version) < 1e-6
    url = f"{server.rest}/v1/models/ctr"
    with RestClient(url) as rest, GrpcClient(server.grpc, "ctr") as grpc:
        answers = {
            "rest": rest.predict(raw, "serving_raw")["ctr"],
            "grpc": grpc.predict(raw, "serving_raw")["ctr"],
            "examples": grpc.predict({"examples": np.array(to_examples(FEATURES), object)}, "serving_default")["ctr"],
        }
    nan = [math.nan] * LENGTH
    instances = [
        {"site": site.decode(), "image vector": nan if math.isnan(one[0]) else one, "v": two, "tags": tags}
        for site, one, two, tags in zip(SITES, FIRST.tolist(), SECOND.tolist(), TEXTS, strict=True)
    ]
    answers["instances"] = post(f"{url}:predict", signature_name="serving_raw", instances=instances)["predictions"]
    examples = [{k: v for k, v in one.items() if v is not nan} for one in instances]
    answers["regress"] = post(f"{url}:regress", signature_name="regress", examples=examples)["results"]
    score(version, [str(log)], tmp_path / "scores", workers=1)
    (part,) = (tmp_path / "scores").glob("*.parquet")
    answers["score"] = pa.parquet.read_table(part)["ctr"].to_numpy()
    (batch,) = LogReader(SPEC, labels=False).read(str(log))
    scorer = Scorer(version)
    answers["packed"] = scorer(pa.Table.from_batches([batch.rows]))["ctr"]
    explained = scorer.explained(pa.Table.from_batches([batch.rows]))
    scorer.close()
    model = load(version)
    lists = {"site": [site.decode() for site in SITES], "v": SECOND.tolist()}
    lists["image vector"] = [None if math.isnan(row[0]) else row for row in FIRST.tolist()]
    answers["python"] = model.predict({**lists, "tags": TEXTS})["ctr"]
    maps = pa.array([row or None for row in LISTS], pa.map_(pa.string(), pa.float64()))
    answers["frame"] = model.predict(pa.table({**lists, "tags": maps}))["ctr"]
    separators = {"image vector": SPEC.inputs["image vector"].separator, "v": SPEC.inputs["v"].separator}  # type: ignore[union-attr]
    written = {
        name: [row and sign.join(map(repr, row)) for row in lists[name]]  # type: ignore[union-attr]
        for name, sign in separators.items()
    }
    as_texts = {**lists, **written, "tags": TEXTS}
    answers["texts"] = model.predict(as_texts)["ctr"]
    large = {name: pa.array(values, pa.large_string()) for name, values in as_texts.items()}  # as pandas has them
    answers["large texts"] = np.asarray(model.predict(pa.table(large)))
    model.close()
    for way, found in answers.items():
        np.testing.assert_allclose(found, expected, atol=2e-6, err_msg=way)
    for way in ("grpc", "score", "packed", "python", "frame", "texts", "large texts"):
        np.testing.assert_array_equal(answers[way], answers["rest"], err_msg=way)
    # A linear model adds up to its columns.
    units = np.nan_to_num(SECOND / np.linalg.norm(SECOND, axis=1, keepdims=True))
    np.testing.assert_allclose(explained["attribution_v"], units @ WEIGHTS[LENGTH:, 0], atol=1e-4)
    assert explained["attribution_image vector"][3] == pytest.approx(0, abs=1e-6)
    np.testing.assert_allclose(explained["attribution_tags"], of_tags(), atol=1e-4)


@pytest.mark.slow
def test_a_vector_of_another_length_is_refused_and_a_huge_one_answered(server):
    url = f"{server.rest}/v1/models/ctr:predict"
    one = {"site": "a", "image vector": [1.0] * LENGTH, "v": [1.0] * LENGTH, "tags": "t0:x|t1:1e300"}
    answer = post(url, signature_name="serving_raw", instances=[{**one, "v": [1.0, 2.0]}])
    assert "v_has_5_numbers" in answer["error"] and "[1,2]" in answer["error"]
    answer = post(url, signature_name="serving_raw", instances=[one, {**one, "v": [1.0, 2.0]}])
    assert "Expecting tensor size: 5 but got: 2" in answer["error"]
    for element in (3e38, -3e38, math.inf, 1e300, math.nan):
        vector = [element, *[1.0] * (LENGTH - 1)]
        (found,) = post(url, signature_name="serving_raw", instances=[{**one, "v": vector}])["predictions"]
        assert 0 < found < 1
    (missing,) = post(url, signature_name="serving_raw", instances=[{**one, "v": [math.nan] * LENGTH}])["predictions"]
    (partly,) = post(url, signature_name="serving_raw", instances=[{**one, "v": [math.nan, 1, 1, 1, 1]}])["predictions"]
    assert missing == partly


@pytest.mark.slow
def test_logged_vectors_are_a_log_again(version, tmp_path):
    raw = raw_arrays(FEATURES, SPEC)
    raw["v"] = np.where(np.arange(ROWS)[:, None] == 1, [[math.nan, 1, 1, 1, 1]], raw["v"]).astype(np.float32)
    with running_server(ServerOptions(version.parent, "ctr", request_log=tmp_path, sampling_rate=1.0)) as addresses:
        with GrpcClient(addresses.grpc, "ctr") as grpc:
            grpc.predict(raw, "serving_raw")
            grpc.predict({"examples": np.array(to_examples(FEATURES), object)}, "serving_default")
    write_rows(tmp_path / "ctr", SPEC, tmp_path / "rows.parquet")
    (batch,) = LogReader(SPEC, labels=False).read(str(tmp_path / "rows.parquet"))
    assert not batch.rejects and batch.rows.num_rows == 2 * ROWS
    found = vector_array(batch.rows["v"])
    np.testing.assert_array_equal(found[ROWS:], SECOND)
    assert np.isnan(found[1]).all()  # a vector that a client sent in part is a missing one, as for the model
    np.testing.assert_array_equal(np.delete(found[:ROWS], 1, axis=0), np.delete(SECOND, 1, axis=0))


@pytest.mark.slow
def test_the_cost_of_a_row_is_measured_with_whole_vectors(version):
    servable = Servable(version)
    try:
        example = tf.train.Example.FromString(_example(servable.signatures["serving_raw"]))
        assert len(example.features.feature["v"].float_list.value) == LENGTH
        assert len(example.features.feature["site"].bytes_list.value) == 1
        assert measure(servable, "serving_default").row_bytes > 4 * 2 * LENGTH
    finally:
        servable.close()


def test_lists_are_vectors_in_python():
    found = to_arrays({"v": [[1, 2], None, (3, 4)], "w": pa.array([[1.5, 2], None, [3, 4]])})
    for values in found.values():
        assert values.dtype == np.float32 and values.shape == (3, 2) and np.isnan(values[1]).all()
    with pytest.raises(InputError, match="column 'v': vectors of 2 and of 3 numbers"):
        to_arrays({"v": [[1, 2], [1, 2, 3]]})


def test_an_explained_vector_shows_its_first_numbers():
    row = pa.Table.from_batches([FEATURES.slice(3, 1)])
    found = served_explanation(row, 0.5, 0.0, 0.0, {"image vector": 0.0, "v": 1.0, "site": 2.0, "tags": 3.0})
    first = ", ".join(f"{value:g}" for value in SECOND[3][:3])
    assert {one.name: one.value for one in found.columns} == {
        "site": ("b",),
        "tags": (TEXTS[3],),
        "v": (f"[{first}, ... 5 numbers]",),
        "image vector": (None,),
    }
    assert LogCodes(pa.Table.from_batches([BATCH]), SPEC).columns == ["site", "tags"]


@pytest.mark.slow
def test_statistics_are_those_of_the_elements(tmp_path):
    with PayloadWriter(tmp_path, "train", payload_schema(SPEC)) as writer:
        writer.write(BATCH)
    for most in (1000, 30):  # all rows, and a sample of them
        found = generate_statistics({"train": payload_files(tmp_path)}, most, 1, Workers(processes=1))["train"]
        (column,) = [one for one in found.statistics.datasets[0].features if one.path.step == ["v"]]
        if most == 1000:
            assert column.num_stats.mean == pytest.approx(float(SECOND.mean()), abs=1e-6)
            assert column.num_stats.max == pytest.approx(float(SECOND.max()))
        assert column.num_stats.common_stats.max_num_values == LENGTH
