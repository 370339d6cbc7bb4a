"""`ctrpipe models`."""

import functools
import json

import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.registry import available
from ctrpipe.pipeline.config.model_table import read_reference
from ctrpipe.pipeline.run import model_sizes
from ctrpipe.pipeline.run.model_sizes import measure_models, measure_reference
from tests.e2e.small_run import call, one_line
from tests.models.small_models import KINDS

CONFIG = {
    "name": "small",
    "data": {"columns": ["label", "n", "x", "c"], "labels": {"ctr": "label"}},
    "features": [
        {"kind": "numeric", "columns": ["x"], "transform": "standardize"},
        {"kind": "categorical", "columns": ["c"], "top_k": 8},
        {"kind": "categorical", "columns": ["n"], "transform": "hash", "buckets": 5},
    ],
    "model": {"name": "mlp", "embedding_dim": 3, "hidden_units": [4]},
}


def test_sizes_of_the_reference_are_those_of_the_equations():
    table = read_reference()
    assert table.where.startswith("39 fields of 5,000 ids; a history of 50 items; two tasks; a text of 64")
    assert [row["name"] for row in table.models] == [info.name for info in available()]
    sizes = {row["name"]: (row["parameters"], row["parameters_without_embeddings"]) for row in table.models}
    ids = 39 * 5000 + 1
    d, m, mlp = 32, 39, (600, 400)
    attention = 3 * (3 * d * d + 2 * d * d)  # Q, K, V, W1, W2 of three layers
    dense = m * d * mlp[0] + mlp[0] + mlp[0] * mlp[1] + mlp[1] + mlp[1] + 1
    assert sizes["attention_net"] == (ids * d + attention + dense, attention + dense)
    cin = 200 * m * m + 2 * 200 * 200 * m + 3 * 200 + 1  # Σ H_k H_{k-1} m and the weights of the pools
    layer = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    encoder = (30522 + 512 + 2 + 2) * 768 + 12 * layer  # tables and their normalisation; attention, feed-forward, norms
    assert sizes["text_only"] == (encoder + 768 * 768 + 768 + 768 + 1,) * 2
    assert sizes["cin"] == (ids * 16 + cin, cin)


def test_the_kept_reference_names_every_model_and_option():
    kept = {row["name"]: (row["paper"], row["description"], row["options"]) for row in read_reference().models}
    known = {info.name: (info.paper, info.description, json.loads(json.dumps(info.options))) for info in available()}
    assert kept == known, "run `python -m ctrpipe.pipeline.run.model_sizes`"


@pytest.mark.large(like="tests/pipeline/test_model_table.py::test_the_kept_reference_names_every_model_and_option")
@pytest.mark.slow
def test_the_kept_reference_is_what_the_models_are():
    assert read_reference().to_json() == measure_reference().to_json(), (
        "run `python -m ctrpipe.pipeline.run.model_sizes`"
    )


@pytest.mark.slow
def test_a_configuration_gives_its_features_and_its_options(tmp_path, monkeypatch):
    # A model of each family, once; the test of the reference above measures all.
    few = [info for info in available() if info.name in KINDS or info.name == "mlp"]
    monkeypatch.setattr(model_sizes, "available", lambda: few)
    monkeypatch.setattr(model_sizes, "measure_models", functools.cache(measure_models))
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(CONFIG))
    code, output = call("models", "--config", path, "--json")
    assert code == 0, output
    [mlp] = [row for row in json.loads(output) if row["name"] == "mlp"]
    ids = 1 + (8 + 2) + (5 + 2)
    dense = (2 * 3 + 1) * 4 + 4 + 4 + 1
    assert mlp["parameters"] == ids * 3 + dense and mlp["parameters_without_embeddings"] == dense
    assert mlp["options"]["hidden_units"] == [4]
    code, output = call("models", "--config", path)
    assert code == 0 and f"{ids * 3 + dense:,}" in output and "2 fields of 18 ids together, 1 dense" in output


def test_a_size_that_depends_on_the_data_is_one_line(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**CONFIG, "features": [{"kind": "categorical", "columns": ["c"]}]}))
    one_line(*call("models", "--config", path), "c has no top_k")
    with pytest.raises(InputError, match="cannot read"):
        measure_models(tmp_path / "absent.yaml")
