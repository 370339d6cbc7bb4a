"""Texts the whole way: a tiny checkpoint, a generated log whose words carry signal, raw strings to the server."""

import json
import pathlib

import numpy as np
import pyarrow.parquet
import pytest
import yaml

from ctrpipe.transforms.generate.formats import TEXT, words_of
from ctrpipe.transforms.log.first_bytes import ENCODING_HINT
from tests.e2e.small_run import call, one_line
from tests.text_checkpoint import write_checkpoint

pytestmark = pytest.mark.slow

ROWS = 6000  # what a model of the text learns from
FEW = 1200  # enough to show that a text comes through the whole way
FEATURES = [
    {"kind": "numeric", "columns": ["age"], "transform": "min_max", "buckets": 10},
    {"kind": "categorical", "columns": ["device"], "top_k": 50},
]
SMALL = {"embedding_dim": 8, "token_dim": 16, "token_ffn": 16, "attention_dim": 8, "hidden_units": [16]}
# Names that TensorFlow and Python do not allow as they are.
COLUMNS = ["click", "age", "device", "category", "shop", "search query", "class"]
MODELS = {
    "text_only": {"name": "text_only", "encoder_dropout": 0.0},
    "bert4ctr": {"name": "bert4ctr", "encoder_dropout": 0.0, **SMALL},
}
BRIEF = {"training": {"batch_size": 64, "epochs": 1}, "gates": {"rig": None}, "evaluation": {}}


def config_of(folder: pathlib.Path, model: dict, changes: dict | None = None) -> pathlib.Path:
    config = {
        "name": "text",
        "data": {
            "columns": COLUMNS,
            "labels": {"ctr": "click"},
            "split": {"validation": 0.1, "test": 0.3},
        },
        "features": [
            *FEATURES,
            {"kind": "text", "columns": COLUMNS[5:], "length": 12, "encoder": str(folder / "checkpoint")},
        ],
        "model": model,
        "training": {"batch_size": 64, "epochs": 6, "learning_rate": 0.005, "monitor": "auc"},
        "evaluation": {"baseline": {"name": "features_only", "token_dim": 16, "hidden_units": [16]}},
        "gates": {"auc": {"min": 0.55}, "max_drop": {}},
        "serving": {"model_name": model["name"]},
        **(changes or {}),
    }
    path = folder / f"{model['name']}.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("text")
    write_checkpoint(folder / "checkpoint", words=words_of(TEXT), layers=1, width=16, ffn=32, positions=16)
    assert call("generate", "--format", "text", "--rows", ROWS, "--output", folder / "log.tsv")[0] == 0
    return folder


@pytest.fixture(scope="module", params=["bert4ctr", pytest.param("text_only", marks=pytest.mark.large)])
def done(request, folder) -> tuple[pathlib.Path, pathlib.Path]:
    """The folder and a pushed version: of a brief training in all stages, or of one that learns from all rows."""
    log, changes = folder / "log.tsv", {}
    if request.param == "bert4ctr":
        log, changes = folder / "few.tsv", BRIEF
        log.write_text("".join((folder / "log.tsv").read_text().splitlines(keepends=True)[:FEW]))
    config = config_of(folder, MODELS[request.param], changes)
    code, output = call("run", config, "--data", log, "--output", folder / "out")
    assert code == 0, output
    [version] = (folder / "out" / "models" / request.param).iterdir()
    return folder, version


@pytest.mark.large(like="tests/e2e/test_text.py::test_raw_strings_to_the_server_give_what_keras_gave")
@pytest.mark.parametrize("done", ["text_only"], indirect=True)
def test_a_model_of_the_text_beats_the_features_alone(done):
    metrics = json.loads((done[0] / "out" / "metrics.json").read_text())
    assert metrics["baseline"]["name"] == "features_only"
    assert metrics["auc"] > metrics["baseline"]["auc"] + 0.02


def test_the_version_says_what_its_text_is(done):
    folder, version = done
    config = json.loads((folder / "checkpoint" / "config.json").read_text())
    text = json.loads((version / "assets.extra" / "feature_map.json").read_text())["text"]
    assert (text["length"], text["vocabulary_size"]) == (12, config["vocab_size"])
    assert len(text["number_ids"]) == 1000


def test_raw_strings_to_the_server_give_what_keras_gave(done):
    from ctrpipe.serving.assets import read_log_spec
    from ctrpipe.serving.client import RestClient
    from ctrpipe.serving.client.predict_rows import predict_rows
    from ctrpipe.serving.loader import Servable
    from ctrpipe.serving.server import ServerOptions, running_server
    from ctrpipe.transforms.log.raw_arrays import raw_arrays
    from ctrpipe.transforms.log.readers import LogReader

    folder, version = done
    hidden = folder / "elsewhere"
    (folder / "checkpoint").rename(hidden)  # the servable needs nothing of it
    try:
        odd = folder / "odd.tsv"
        rows = [line.split("\t") for line in (folder / "log.tsv").read_text().splitlines()[:40]]
        rows[0][5:] = ["", ""]
        rows[1][5], rows[2][6] = "", ""
        rows[3][5:] = ["é ☃ [SEP] RED", "red " * 25_000]
        rows[5][5:] = rows[4][5:]  # the same texts in another row
        rows[6][5] = rows[4][5]
        odd.write_text("\n".join("\t".join(row) for row in rows) + "\n")
        spec = read_log_spec(version)
        [batch] = LogReader(spec).read(str(odd))
        servable = Servable(version)
        raw = raw_arrays(batch.rows, spec)
        expected = servable.run("serving_raw", raw)["ctr"]
        packed = servable.run("transform_raw", raw)
        assert packed["tokens"].shape == packed["segments"].shape == (40, 12)
        found = {"serving_packed": servable.run("serving_packed", packed)["ctr"]}
        servable.close()
        with running_server(ServerOptions(version.parent, version.parent.name)) as server:
            with RestClient(f"{server.rest}/v1/models/{version.parent.name}") as client:
                found["REST"] = np.array([row.probability for row in predict_rows(client, odd, 40)])
        code, output = call("score", "--model", version.parent, "--input", odd, "--output", folder / version.name)
        assert code == 0, output
        found["score"] = pyarrow.parquet.read_table(folder / version.name)["ctr"].to_numpy()
        for name, probabilities in found.items():
            np.testing.assert_allclose(probabilities, expected, atol=1e-6, err_msg=name)
        assert len(np.unique(expected)) > 30
    finally:
        hidden.rename(folder / "checkpoint")


def test_a_row_is_explained_down_to_its_tokens(done):
    folder, version = done
    line, other = f"{folder / 'log.tsv'}:4", f"{folder / 'log.tsv'}:9"
    words = " ".join((folder / "log.tsv").read_text().splitlines()[3].split("\t")[5:]).lower().split()
    asked = ["--row", line, "--baseline", other, "--output", folder / "explained", "--method", "both"]
    code, output = call("explain", version, *asked)
    assert code == 0, output
    found = json.loads((folder / "explained" / "row.json").read_text())
    one = found["gradients"]
    assert sum(column["logit"] for column in one["columns"]) == pytest.approx(one["logit"] - one["baseline"], abs=1e-3)
    for key in ("logit", "baseline"):
        assert one[key] == pytest.approx(found["shapley"][key], abs=1e-4)
    named = [token["token"] for token in one["tokens"]]
    assert named[0] == "[CLS]" and set(words[:2]) <= set(named) and any(token["logit"] for token in one["tokens"])


def test_texts_that_are_no_utf8_are_dead_letters(folder, tmp_path):
    lines = (folder / "log.tsv").read_bytes().splitlines()[:500]
    lines[7] = b"0\t33\ta\tb\tc\tred \xff dress\tnew hat"
    (tmp_path / "log.tsv").write_bytes(b"\n".join(lines) + b"\n")
    from ctrpipe.pipeline.config import load_config
    from ctrpipe.transforms.log.readers import LogReader

    spec = load_config(config_of(folder, MODELS["text_only"])).log_spec
    [batch] = LogReader(spec).read(str(tmp_path / "log.tsv"))
    [reject] = batch.rejects
    assert (reject.line, reject.reason) == (8, f"search query: invalid UTF-8{ENCODING_HINT}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "bert4ctr", "encoder": "nowhere"}, "encoder: nowhere: no such folder"),
        ({"name": "text_only", "encoder_positions": 8}, "length is 12, but the encoder has positions for 8 tokens"),
    ],
)
def test_a_mistake_of_the_text_is_one_line_before_anything_is_read(folder, tmp_path, change, message):
    path = config_of(folder, change)
    one_line(*call("run", path, "--data", folder / "log.tsv", "--output", tmp_path / "out"), message)
