"""Which columns a configuration can do without: by themselves, together, and by what it names."""

import numpy as np
import pyarrow as pa
import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.explain.importance import Permuter, adjusted
from ctrpipe.pipeline.explain.prune import Pruned, config_of_run, prune, without, write_pruned
from ctrpipe.pipeline.run.trained_model import TrainedModel
from tests.e2e.small_run import call, one_line

ROWS = 4000


def config(**changes) -> RunConfig:
    settings = {
        "name": "mine",
        "data": {"columns": ["label", "p", "a", "twin", "b", "unused"], "labels": {"ctr": "label"}},
        "features": [
            {"kind": "categorical", "columns": ["a", "twin", "b", "unused"], "min_count": 2},
            {"kind": "categorical", "columns": ["p"], "role": "position"},
        ],
        "model": {"name": "fm", "embedding_dim": 4},
        "training": {"plateau": None, "epochs": 3},
        "serving": {"position": {"p": "1"}},
    }
    return RunConfig.model_validate({**settings, **changes})


def rows() -> pa.Table:
    random = np.random.default_rng(1)
    a = random.choice([-1.0, 1.0], ROWS)
    drawn = {name: random.choice([-1.0, 1.0], ROWS) for name in ("b", "unused", "p")}
    return pa.table({"a": a, "twin": a, **drawn})


def score(table: pa.Table) -> np.ndarray:
    """A model that needs b, and takes a or its twin: alone neither costs anything, both together much."""
    a, twin, b = (table[name].to_numpy() for name in ("a", "twin", "b"))
    return 1 / (1 + np.exp(-(1.5 * np.maximum(a, twin) + 2 * b)))


def asked(limit: float, of: RunConfig) -> Pruned:
    clicks = (np.random.default_rng(2).random(ROWS) < score(rows())).astype(np.float32)
    permuter, anew = (Permuter(score, rows(), clicks, 2, seed) for seed in (1, 2))
    names = ("a", "twin", "b", "unused", "p")
    return prune(of, adjusted([permuter.importance(name, [name]) for name in names]), permuter, anew.importance, limit)


def test_of_two_columns_that_stand_in_for_each_other_one_stays():
    clicks = (np.random.default_rng(2).random(ROWS) < score(rows())).astype(np.float32)
    permuter = Permuter(score, rows(), clicks, 2, 2)
    cost = permuter.importance("a", ["a"]).auc.value
    found = asked(cost * 1.2, config())
    assert set(found.columns) == {"unused", "a"} or set(found.columns) == {"unused", "twin"}
    assert found.auc.value < found.limit and found.auc.interval[0] < found.auc.value < found.auc.interval[1]
    both = permuter.importance("both", ["a", "twin", "unused"]).auc.value
    assert both > 1.5 * found.limit and found.left == 3
    assert found.needed == ("p",)  # a position is no feature that the model could do without


def test_only_what_costs_nothing_is_left_out_below_any_cost():
    found = asked(1e-6, config())
    assert found.columns == ("unused",) and found.auc.value == 0 and found.alone == 0


def test_where_every_column_is_needed_there_is_nothing_to_prune():
    with pytest.raises(InputError, match="--prune 1e-06: no column that the configuration can do without"):
        asked(1e-6, config(evaluation={"slices": ["unused"]}))


def test_a_configuration_keeps_what_it_names():
    smaller = without(config(), ["twin", "unused"])
    assert smaller and smaller.feature_columns == ["a", "b", "p"] and smaller.name == "mine_pruned"
    assert smaller.training.plateau is None and smaller.features[0].min_count == 2
    assert without(config(), ["p"]) is None
    assert without(config(evaluation={"slices": ["a"]}), ["a"]) is None
    assert without(config(), ["a", "twin", "b", "unused"]).feature_columns == ["p"]


def test_a_text_and_a_vocabulary_that_others_share_stay():
    features = [
        {"kind": "categorical", "columns": ["item", "kind"]},
        {"kind": "sequence", "columns": ["items", "kinds"], "shared_with": ["item", "kind"], "max_length": 5},
        {"kind": "text", "columns": ["title"], "length": 8, "tokens": "vocabulary", "separator": " "},
    ]
    data = {"labels": {"ctr": "label"}, "format": "parquet"}
    both = config(data=data, features=features, serving={}, model={"name": "bert4ctr"})
    assert without(both, ["item"]) is None and without(both, ["title"]) is None
    assert without(both, ["kind", "kinds"]).features[1].shared_with == ["item"]
    assert without(config(data=data, features=features, serving={}), ["title"]).text is None


def test_the_written_configuration_is_the_smaller_one(tmp_path):
    pruned = {"columns": ("unused",), "auc": {"value": 0.0004, "interval": (-0.0001, 0.0009)}}
    path = write_pruned(tmp_path / "new", config(), pruned)
    text = path.read_text()
    assert text.startswith("# mine without 1 of 5 columns: unused.\n") and "-0.00010 .. +0.00090" in text
    assert load_config(path) == without(config(), ["unused"])
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="choose another --output"):
        write_pruned(tmp_path / "file", config(), pruned)


def test_the_configuration_is_that_of_the_run(tmp_path):
    with pytest.raises(InputError, match="--prune: .* is a version"):
        config_of_run(TrainedModel(tmp_path, None))
    (tmp_path / "report_data").mkdir()
    path = tmp_path / "report_data" / "config.yaml"
    path.write_text(yaml.safe_dump(config().model_dump(mode="json")))
    assert config_of_run(TrainedModel(tmp_path, tmp_path)) == config()


def test_wrong_usage_is_one_line(tmp_path):
    alone, common = ["explain", tmp_path, "--prune", "0.001"], ["--output", tmp_path]
    for wrong in (alone, [*alone, *common, "--row", "x:1"], [*alone, *common, "--slice", "a=1"]):
        one_line(
            *call(*wrong), "--prune 0.001: give --output DIR, which gets pruned.yaml, and neither --row nor --slice"
        )
