"""Retrieval: items indexed inside a version with towers, and what loader, server and command answer of them."""

import csv
import json
import pathlib
import re

import httpx
import keras
import numpy as np
import pyarrow.parquet
import pytest
import tensorflow as tf
import tensorflow_transform as tft
from click.testing import CliRunner
from tensorflow_serving.apis import prediction_log_pb2

from benchmarks.retrieval import main as benchmark
from ctrpipe.common.errors import InputError
from ctrpipe.common.processes import Workers
from ctrpipe.models import create
from ctrpipe.models.base.ctr_model import empty_row
from ctrpipe.pipeline.cli import main
from ctrpipe.pipeline.retrieval.retrieve import Approximate, answer, index_items
from ctrpipe.pipeline.run.trained_model import TrainedModel
from ctrpipe.serving.assets import GoldenRows
from ctrpipe.serving.export import retrieval
from ctrpipe.serving.export.export import export
from ctrpipe.serving.export.retrieval import APPROXIMATE, RETRIEVE, Cells, ExactSearch, ItemIndex
from ctrpipe.serving.layout import Asset, asset_path
from ctrpipe.serving.loader import Servable
from ctrpipe.serving.server import parse_flags, running_server
from ctrpipe.serving.server.check import check_servable
from ctrpipe.transforms.features.preprocessing import feature_map
from ctrpipe.transforms.features.transform import analyze
from ctrpipe.transforms.log.payload import PayloadWriter, payload_files, payload_schema
from ctrpipe.transforms.log.readers import LogReader
from ctrpipe.transforms.log.spec import LogSpec
from tests.serving import small_servable

pytestmark = pytest.mark.slow

FILM = "film id"  # no name of an argument of Python's
SPEC = LogSpec.model_validate(
    {
        "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
        "features": [
            {"columns": ["User", FILM], "kind": "categorical", "min_count": 2},
            {"columns": ["year"], "kind": "numeric", "transform": "standardize", "role": "item"},
            {"columns": ["seen"], "kind": "sequence", "shared_with": FILM, "max_length": 4},
        ],
    }
)
FILMS = {f"f{number}": 1960 + 3 * number for number in range(20)}
RARE = {"g0": 1990, "g1": 1991}  # one row each: not in the vocabulary


def write_csv(path: pathlib.Path, names: list[str], rows: list[list[object]]) -> pathlib.Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([names, *rows])
    return path


def log_rows() -> list[list[object]]:
    random = np.random.default_rng(1)
    films = [*random.choice(list(FILMS), 400), *RARE]
    years = FILMS | RARE
    seen = ["|".join(random.choice(list(FILMS), random.integers(0, 6))) for _ in films]
    return [[n % 2, f"u{n % 9}", film, years[film], seen[n]] for n, film in enumerate(films)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    """A version with random towers in models/7, the log of its training, films.csv and users.csv."""
    folder = tmp_path_factory.mktemp("retrieve")
    log = write_csv(folder / "log.csv", ["click", "User", FILM, "year", "seen"], log_rows())
    [batch] = LogReader(SPEC).read(str(log))
    (folder / "payload").mkdir()
    with PayloadWriter(folder / "payload", "train", payload_schema(SPEC)) as writer:
        writer.write(batch.rows)
    analyze(SPEC, payload_files(folder / "payload"), folder / "graph", Workers(processes=1))
    transform = tft.TFTransformOutput(str(folder / "graph"))
    fields = feature_map(SPEC, transform)
    keras.utils.set_random_seed(1)
    model = create("two_tower", fields, embedding_dim=4, embedding_stddev=1.0, hidden_units=(8,), vector_dim=5)
    model(empty_row(fields))
    export(model, transform, SPEC, fields, batch.rows.slice(0, 5), folder / "models" / "7", {})
    films = [[film, year] for film, year in (FILMS | RARE | {"never seen": 2000}).items()]
    write_csv(folder / "films.csv", [FILM, "year"], [[film, 1000] for film in FILMS] + films + [["", 1970]])
    write_csv(folder / "users.csv", ["User", "seen"], [["u1", "f3|f4"], ["u2", ""], ["nobody", "f9|f1|f9"]])
    return folder


@pytest.fixture(scope="module")
def indexed(folder) -> pathlib.Path:
    """The version with the films, answering eight of them."""
    source = TrainedModel(folder / "models" / "7", None)
    indexed = index_items(source, [str(folder / "films.csv")], None, 8, folder / "indexed")
    found = indexed.found
    assert (found.rows, found.unnamed, found.unknown, len(found.names)) == (44, 1, 3, 20)
    described = json.loads(asset_path(indexed.version, Asset.ITEM_INDEX).read_text())
    assert len(described.pop("fingerprint")) == 64
    assert described == {"items": 20, "top": 8, "approximate": None}
    return indexed.version


@pytest.fixture(scope="module")
def approximate(folder) -> pathlib.Path:
    """The version with an approximate index too, which is to find all of the golden rows' answers."""
    source = TrainedModel(folder / "models" / "7", None)
    asked = Approximate(recall=1.0, cells=5)
    return index_items(source, [str(folder / "films.csv")], None, 8, folder / "approximate", asked).version


def expected(folder, users: dict[str, np.ndarray], top: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """The films by the products of the vectors that the version without an index answers, and these products."""
    servable = Servable(folder / "models" / "7")
    try:
        names = np.array([name.encode() for name in FILMS], object)
        films = {FILM: names, "year": np.array(list(FILMS.values()), np.float32)}
        products = servable.run("serving_user", users)["vectors"] @ servable.run("serving_item", films)["vectors"].T
    finally:
        servable.close()
    order = np.argsort(-products, axis=1)[:, :top]
    return names[order], np.take_along_axis(products, order, axis=1)


USERS = {
    "User": np.array([b"u1", b"u2", b"nobody"], object),
    "seen": np.array([b"f3|f4", b"", b"f9|f1|f9"], object),
}


def test_the_index_answers_the_films_of_the_largest_products_each_once_by_its_last_row(folder, indexed):
    servable = Servable(indexed)
    try:
        found = servable.run("serving_retrieve", USERS)
    finally:
        servable.close()
    films, products = expected(folder, USERS)
    assert found["items"].tolist() == films.tolist() and len(set(map(tuple, films))) == 3
    np.testing.assert_allclose(found["scores"], products, atol=1e-6)


def test_the_product_is_the_probability_s(folder):
    """Of a pair, <u, v> / temperature + b is the logit that `serving_raw` answers."""
    version = folder / "models" / "7"
    raw = GoldenRows.load(asset_path(version, Asset.GOLDEN)).raw
    servable = Servable(version)
    try:
        users = servable.run("serving_user", {name: raw[name] for name in ("User", "seen")})["vectors"]
        films = servable.run("serving_item", {name: raw[name] for name in (FILM, "year")})["vectors"]
        probability = servable.run("serving_raw", raw)["ctr"]
    finally:
        servable.close()
    np.testing.assert_allclose(1 / (1 + np.exp(-(users * films).sum(axis=1) / 0.1)), probability, atol=1e-6)


def probed(version: pathlib.Path, users: np.ndarray, probes: int) -> list[set[bytes]]:
    """The films of the cells whose centers are nearest to each user, by the version's own numbers."""
    kept = tf.saved_model.load(str(version))._index
    names, starts = kept._names.numpy(), kept._cells._starts.numpy()
    nearest = np.argsort(-(users @ kept._cells._centers.numpy().T), axis=1)[:, :probes]
    return [{name for cell in row for name in names[starts[cell] : starts[cell + 1]]} for row in nearest]


def test_an_approximate_index_is_beside_the_exact_one_and_its_recall_is_in_the_version(folder, approximate):
    described = json.loads(asset_path(approximate, Asset.ITEM_INDEX).read_text())
    stated = described.pop("approximate")
    described.pop("fingerprint")
    assert described == {"items": 20, "top": 8} and (stated["cells"], stated["recall"], stated["users"]) == (5, 1.0, 5)
    assert check_servable(approximate) <= 1e-6
    servable = Servable(approximate)
    try:
        exact, found = (servable.run(name, USERS) for name in ("serving_retrieve", "serving_retrieve_approximate"))
        users = servable.run("serving_user", USERS)["vectors"]
    finally:
        servable.close()
    assert exact["items"].tolist() == expected(folder, USERS)[0].tolist()
    order, scores = expected(folder, USERS, len(FILMS))
    for row, names in enumerate(probed(approximate, users, stated["probes"])):
        best = [(film, score) for film, score in zip(order[row], scores[row], strict=True) if film in names][:8]
        assert found["items"][row].tolist() == [film for film, _ in best]
        np.testing.assert_allclose(found["scores"][row], [score for _, score in best], atol=1e-6)


@pytest.mark.parametrize(
    "items", [1, 319, 320, 321, 352, 1007]
)  # of 10 blocks of 32 and fewer, all products are ordered
def test_the_exact_search_answers_the_largest_products_of_any_number_of_items(items):
    random, top = np.random.default_rng(items), min(10, items)
    vectors = np.round(random.normal(size=(items, 4)), 1).astype(np.float32)
    users = np.round(random.normal(size=(7, 4)), 1).astype(np.float32)
    scores, places = (values.numpy() for values in ExactSearch(tf.Variable(vectors), top)(tf.constant(users)))
    products = users.astype(np.float64) @ vectors.T.astype(np.float64)
    np.testing.assert_allclose(scores, -np.sort(-products, axis=1)[:, :top], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(products, places, axis=1), scores, atol=1e-5)
    assert all(len(set(row)) == top for row in places.tolist())


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("count", [0, 1, 7, 8])
def test_groups_of_users_find_what_all_of_them_find(monkeypatch, approximate, count):
    random = np.random.default_rng(3)
    vectors = random.normal(size=(300, 4)).astype(np.float32)
    users = random.normal(size=(count, 4)).astype(np.float32)
    cells = Cells(vectors[:2], np.repeat([0, 1], 150).astype(np.int32), 2)  # both are read
    index = ItemIndex(np.arange(300).astype("S3").astype(object), vectors, 5, cells if approximate else None)
    # Two users a group; of the approximate search one, because its vectors take four times as much.
    monkeypatch.setattr(retrieval, "GROUP_BYTES", 4 * 300 * 2)
    search = tf.function(lambda users: index.best(APPROXIMATE if approximate else RETRIEVE, users))
    found = search(tf.constant(users))
    products = users @ vectors.T
    wanted = np.argsort(-products, axis=1)[:, :5]
    np.testing.assert_array_equal(found["items"].numpy().astype(int).reshape(-1, 5), wanted)
    np.testing.assert_allclose(found["scores"], np.take_along_axis(products, wanted, 1), rtol=1e-5)


def test_the_best_items_may_all_lie_in_one_block_or_behind_the_last():
    vectors = np.zeros((1000, 2), np.float32)
    vectors[640:652, 0] = np.arange(12, 0, -1)  # in block 20
    vectors[994:1000, 1] = np.arange(6, 0, -1)  # behind the 31 blocks
    _, places = ExactSearch(tf.Variable(vectors), 5)(tf.constant([[1.0, 0.0], [0.0, 1.0]]))
    assert places.numpy().tolist() == [[640, 641, 642, 643, 644], [994, 995, 996, 997, 998]]


def test_the_approximate_search_gathers_no_variable_that_the_exact_one_reads():
    """TensorFlow copies a variable at every read, once a ResourceGather has read it: 128 MB for a million items."""
    cells = Cells(np.eye(2, 3, dtype=np.float32), np.array([0, 1, 0, 1, 1], np.int32), probes=1)
    index = ItemIndex(np.array([b"%d" % n for n in range(5)], object), np.ones((5, 3), np.float32), 2, cells)
    users = tf.TensorSpec([None, 3], tf.float32)
    read = {}
    for name in index.signatures:
        graph = tf.function(lambda users, name=name: index.best(name, users)).get_concrete_function(users).graph
        kinds = {"ReadVariableOp", "ResourceGather"}
        read[name] = {(op.type, op.outputs[0].dtype) for op in graph.get_operations() if op.type in kinds}
    assert ("ReadVariableOp", tf.float32) in read[RETRIEVE] & read[APPROXIMATE]
    assert ("ResourceGather", tf.float32) not in read[RETRIEVE] | read[APPROXIMATE]
    assert ("ResourceGather", tf.string) in read[RETRIEVE] & read[
        APPROXIMATE
    ]  # that of the names, which nothing else reads


def warmed(version: pathlib.Path) -> set[str]:
    """The signatures that a server asks before it takes a version."""
    records = tf.data.TFRecordDataset(str(asset_path(version, Asset.WARMUP))).as_numpy_iterator()
    logs = [prediction_log_pb2.PredictionLog.FromString(record) for record in records]
    return {log.predict_log.request.model_spec.signature_name for log in logs}


@pytest.mark.large(
    like="tests/pipeline/test_retrieve.py::test_the_index_answers_the_films_of_the_largest_products_each_once_by_its_last_row"
)
def test_all_else_is_answered_as_before_and_a_second_index_takes_the_place_of_the_first(
    folder, indexed, approximate, tmp_path
):
    assert check_servable(indexed) <= 1e-6 and indexed.name == "7"
    (tmp_path / "11").mkdir()  # a version that is there already
    indexed = index_items(TrainedModel(approximate, None), [str(folder / "log.csv")], FILM, 3, tmp_path)
    again = indexed.version
    assert again.name == "12" and len(indexed.found.names) == 20
    before, after = Servable(folder / "models" / "7"), Servable(again)
    try:
        assert set(after.signatures) - set(before.signatures) == {"serving_retrieve"}
        assert warmed(approximate) - warmed(folder / "models" / "7") == {RETRIEVE, APPROXIMATE}
        assert warmed(again) - warmed(folder / "models" / "7") == {RETRIEVE}
        assert after.run("serving_retrieve", USERS)["items"].tolist() == expected(folder, USERS)[0][:, :3].tolist()
    finally:
        before.close()
        after.close()


def test_a_server_answers_the_films_over_rest(folder, approximate):
    flags = [f"--model_base_path={approximate.parent}", "--model_name=films"]
    inputs = {name: [value.decode() for value in values.tolist()] for name, values in USERS.items()}
    answers = {}
    with running_server(parse_flags(flags)) as server:
        for signature in ("serving_retrieve", "serving_retrieve_approximate"):
            body = {"signature_name": signature, "inputs": inputs}
            answer = httpx.post(f"{server.rest}/v1/models/films/versions/7:predict", json=body, trust_env=False)
            assert answer.status_code == 200, answer.text
            answers[signature] = answer.json()["outputs"]
    servable = Servable(approximate)
    try:
        probed = servable.run("serving_retrieve_approximate", USERS)
    finally:
        servable.close()
    films, products = expected(folder, USERS)
    for signature, names, scores in (
        ("serving_retrieve", films, products),
        ("serving_retrieve_approximate", probed["items"], probed["scores"]),
    ):
        assert [[name.encode() for name in row] for row in answers[signature]["items"]] == names.tolist()
        np.testing.assert_allclose(answers[signature]["scores"], scores, atol=1e-6)


def test_the_same_command_again_writes_no_second_version(folder, tmp_path):
    def versions_after(*arguments: str) -> list[str]:
        made = ["--items", str(folder / "films.csv"), "--output", str(tmp_path / "out"), "--top", "3"]
        result = CliRunner().invoke(main, ["retrieve", *made, *arguments])
        assert result.exit_code == 0, result.output
        return [re.search(r"^(Written|Unchanged): .*/(\d+), with 20 items", result.output, re.M).group(1, 2)]

    towers = ["--model", str(folder / "models" / "7")]
    users = ["--queries", str(folder / "users.csv"), "--answers", str(tmp_path / "best.parquet")]
    assert versions_after(*towers) == [("Written", "7")]
    assert versions_after(*towers, *users) == [("Unchanged", "7")]
    assert len(pyarrow.parquet.read_table(tmp_path / "best.parquet")) == 3
    assert versions_after("--model", str(tmp_path / "out")) == [("Unchanged", "7")]  # the same model, with its index
    assert versions_after(*towers, "--top", "2") == [("Written", "8")]
    assert versions_after(*towers) == [("Written", "9")]  # the newest one is the one that is served


def test_the_command_answers_each_line_of_a_log_of_users(folder, indexed, tmp_path):
    users = (folder / "users.csv").read_text()
    (tmp_path / "users.csv").write_text(users + "u1,f1,too many\n")
    arguments = ["--queries", str(tmp_path / "users.csv"), "--answers", str(tmp_path / "best.parquet")]
    result = CliRunner().invoke(main, ["retrieve", "--model", str(indexed), *arguments])
    assert result.exit_code == 0 and re.search(
        r"^3 rows answered in .* s; 1 malformed lines left out", result.output, re.M
    )
    table = pyarrow.parquet.read_table(tmp_path / "best.parquet")
    assert table["line"].to_pylist() == [2, 3, 4] and set(table["file"].to_pylist()) == {str(tmp_path / "users.csv")}
    assert table["items"].to_pylist() == expected(folder, USERS)[0].tolist()


@pytest.mark.large(
    like="tests/pipeline/test_retrieve.py::test_an_approximate_index_is_beside_the_exact_one_and_its_recall_is_in_the_version"
)
def test_the_command_says_what_an_approximate_index_finds_and_answers_by_it(folder, tmp_path):
    made = ["--items", str(folder / "films.csv"), "--output", str(tmp_path / "out"), "--top", "3"]
    asked = ["--index", "approximate", "--recall", "0.5", "--cells", "4"]
    queries = ["--queries", str(folder / "users.csv"), "--answers", str(tmp_path / "best.parquet")]
    command = ["retrieve", "--model", str(folder / "models" / "7"), *made, *asked, *queries]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
    stated = json.loads(asset_path(tmp_path / "out" / "7", Asset.ITEM_INDEX).read_text())["approximate"]
    assert f"{stated['probes']} of 4 cells are read; recall@3 {stated['recall']:.4f}, by 5 users\n" in result.output
    assert "Unchanged: " in CliRunner().invoke(main, command).output
    servable = Servable(tmp_path / "out" / "7")
    try:
        found = servable.run("serving_retrieve_approximate", USERS)["items"].tolist()
    finally:
        servable.close()
    assert pyarrow.parquet.read_table(tmp_path / "best.parquet")["items"].to_pylist() == found


@pytest.mark.large(
    like="tests/pipeline/test_retrieve.py::test_an_approximate_index_is_beside_the_exact_one_and_its_recall_is_in_the_version"
)
def test_the_benchmark_checks_the_answers_of_each_size_and_refuses_a_model_without_towers(folder, tmp_path):
    arguments = ["--items", "50,300", "--calls", "2", "--rounds", "1", "--recall", "0.9", "--clusters", "10"]
    arguments += ["--output", str(tmp_path / "retrieval.json")]
    result = CliRunner().invoke(benchmark, [str(folder / "models" / "7"), *arguments])
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "retrieval.json").read_text())
    assert [one["items"] for one in report["results"]] == [50, 300]
    for one, cells in zip(report["results"], (28, 69), strict=True):
        assert min(one[name]["min"] for name in ("retrieve_ms", "approximate_ms", "user_ms", "call_ms")) > 0
        exact, approximate = one["searches"]
        assert (exact["index"], exact["recall"], exact["setting"]) == ("exact", 1.0, None)
        assert (approximate["index"], one["cells"], approximate["setting"]) == ("approximate", cells, one["probes"])
        assert 0.5 < approximate["recall"] <= 1 and approximate["ms"]["min"] > 0
    other = small_servable.save(tmp_path / "1", small_servable.spec())
    refused = CliRunner().invoke(benchmark, [str(other), *arguments])
    assert refused.exit_code == 2 and "the model has no towers; give a version of two_tower" in refused.output


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("title,year\nf1,1960\n", "the header lacks film id, which the configuration names"),
        ("film id,year\nnever,1960\n", "none of 1 items is in the model's vocabulary of film id"),
    ],
)
def test_a_log_that_has_no_items_is_refused_in_one_line(folder, tmp_path, items, message):
    (tmp_path / "films.csv").write_text(items)
    source = TrainedModel(folder / "models" / "7", None)
    with pytest.raises(InputError, match=message) as refused:
        index_items(source, [str(tmp_path / "films.csv")], None, 8, tmp_path / "out")
    assert "\n" not in str(refused.value) and not (tmp_path / "out").exists()


def test_what_cannot_be_retrieved_is_refused_in_one_line(folder, indexed, tmp_path):
    other = small_servable.save(tmp_path / "1", small_servable.spec())
    with pytest.raises(InputError, match="the model has no towers; train model.name: two_tower"):
        index_items(TrainedModel(other, None), ["any"], None, 8, tmp_path / "out")
    towers = folder / "models" / "7"
    with pytest.raises(InputError, match="the version has no index; make one with --items and --output"):
        answer(towers, [str(folder / "users.csv")], tmp_path / "best.parquet")
    films = [str(folder / "films.csv")]
    with pytest.raises(InputError, match="--cells 21: there are 20 items; give at most that many cells"):
        index_items(TrainedModel(towers, None), films, None, 8, tmp_path / "out", Approximate(cells=21))
    with pytest.raises(InputError, match="no approximate index; make one with --index approximate and --output"):
        answer(indexed, [str(folder / "users.csv")], tmp_path / "best.parquet", "approximate")
    with pytest.raises(InputError, match="--item User: not a categorical column of the item; those are film id"):
        index_items(TrainedModel(towers, None), ["any"], "User", 8, tmp_path / "out")
    with pytest.raises(InputError, match="a version has no rows; give --items, a log with film id, year"):
        index_items(TrainedModel(towers, None), [], None, 8, tmp_path / "out")
    for arguments in (["--queries", "users.csv"], ["--items", "films.csv"], []):
        result = CliRunner().invoke(main, ["retrieve", "--model", str(towers), *arguments])
        assert result.exit_code == 2 and result.output.startswith("ctrpipe: --") and result.output.count("\n") == 1
