"""Configurations and keys as Python gives them, and what a wrong one says."""

import pathlib

import numpy as np
import pandas as pd
import pytest
import yaml

import ctrpipe
from ctrpipe.pipeline.config import load_config, nearest_key
from ctrpipe.pipeline.config.keys import known_keys
from ctrpipe.pipeline.sweep.plan import make_plan
from ctrpipe.settings import grids, overrides
from tests.ctrpipe.small_log import CONFIG, frame


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"epochs": 2}, "epochs: no such key; did you mean training__epochs?"),
        ({"training__epoch": 2}, "training__epoch: no such key; did you mean training__epochs?"),
        ({"trainin__epochs": 2}, "trainin__epochs: no such key; did you mean training__epochs?"),
        ({"dropout": 0.1}, "dropout: no such key; did you mean model__dropout?"),
        ({"data__label": {}}, "data__label: no such key; did you mean data__labels?"),
        ({"qqq": 2}, "qqq: no such key; docs/configuration.md has every key"),
        ({"training__epochs": 0}, "training__epochs=0: training.epochs: Input should be greater"),
        ({"training__epochs": object()}, "training__epochs: <object .* is not a configuration value"),
    ],
)
def test_a_wrong_key_says_the_nearest_right_one(settings, text):
    with pytest.raises(ctrpipe.InputError, match=f"^{text}"):
        ctrpipe.check(CONFIG, frame(20), **settings)


@pytest.mark.slow
def test_a_wrong_hyperparameter_says_the_nearest_right_one(tmp_path):
    expected = "^model__embeding_dim: no such key; did you mean model__embedding_dim?"
    with pytest.raises(ctrpipe.InputError, match=expected):
        ctrpipe.run(CONFIG, frame(100), tmp_path / "run", model__embeding_dim=4)


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        ("epochs", "training.epochs"),
        ("gates.auc.minimum", "gates.auc.min"),
        ("training.epoch", "training.epochs"),
        ("embedding_dim", "model.embedding_dim"),
        ("model.embeding_dim", "model.embedding_dim"),
        ("model.learning_rate", "training.learning_rate"),
        ("evaluation.baselin", "evaluation.baseline"),
        ("batchsize", "training.batch_size"),
        ("sed", "seed"),
        ("seeds", "evaluation.seeds"),
        ("qqq", None),
    ],
)
def test_the_nearest_key_is_found_from_the_schema(wrong, nearest):
    assert nearest_key(wrong, "deepfm") == nearest
    assert nearest is None or nearest in known_keys("deepfm")


def test_the_hyperparameters_of_an_own_model_are_near_keys():
    assert nearest_key("model.towr", "mine:Own", ["towers"]) == "model.towers"
    assert nearest_key("model.towr", "mine:Own") != "model.towers"


def test_the_command_line_says_it_with_dots():
    from tests.e2e.small_run import call, one_line

    arguments = ("check", "criteo/deepfm.yaml", "--data", "absent.tsv", "--set")
    one_line(*call(*arguments, "epochs=2"), "--set epochs=2: epochs: unknown key; did you mean training.epochs?")


def test_a_configuration_is_a_file_a_packaged_name_a_dict_or_a_draft(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pathlib.Path("own.yaml").write_text(yaml.safe_dump(CONFIG))
    draft = ctrpipe.init(frame(200))
    for config in ("own.yaml", tmp_path / "own.yaml", CONFIG, {"extends": "own.yaml"}, draft, draft.config):
        assert ctrpipe.check(config, frame(200)).rows == 200
    assert ctrpipe.check(draft).rows == 200  # of what it was made for
    assert load_config(pathlib.Path("criteo/deepfm.yaml")).model.name == "deepfm"
    assert "name" in CONFIG and "epochs" in CONFIG["training"]
    before = yaml.safe_dump(CONFIG)
    ctrpipe.check(CONFIG, frame(200), training__epochs=9)
    assert yaml.safe_dump(CONFIG) == before
    with pytest.raises(ctrpipe.InputError, match="^configuration: model: this key is required"):
        ctrpipe.check({key: value for key, value in CONFIG.items() if key != "model"}, frame(20))


def test_a_packaged_configuration_is_named_as_in_the_documents_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config(pathlib.Path("configs/criteo/deepfm.yaml")).model.name == "deepfm"
    pathlib.Path("own.yaml").write_text("extends: configs/criteo/deepfm.yaml\nname: own\n")
    assert load_config(pathlib.Path("own.yaml")).model.name == "deepfm"
    pathlib.Path("configs/criteo").mkdir(parents=True)
    own = "extends: ../../base.yaml\nname: mine\n"  # a file of one's own goes before the packaged one
    pathlib.Path("configs/criteo/deepfm.yaml").write_text(own)
    pathlib.Path("base.yaml").write_text("extends: criteo/lr.yaml\n")
    assert load_config(pathlib.Path("configs/criteo/deepfm.yaml")).name == "mine"
    for name, advice in {
        "configs/criteo/deepmf.yaml": "did you mean criteo/deepfm.yaml[?]",
        "my.yaml": "check the path, or see `ctrpipe configs`",
    }.items():
        message = f"^{name}: cannot read the configuration: No such file or directory; {advice}$"
        with pytest.raises(ctrpipe.InputError, match=message):
            load_config(pathlib.Path(name))
        with pytest.raises(ctrpipe.InputError, match=message):
            make_plan(pathlib.Path(name), grid=("model.name=lr,fm",))


def test_a_frame_with_the_columns_that_are_read_is_a_log_of_a_text_format(tmp_path):
    names = ["label", *(f"I{n}" for n in range(1, 14)), *(f"C{n}" for n in range(1, 27))]
    config = {
        "name": "text",
        "data": {"columns": names, "labels": {"ctr": "label"}},
        "features": [{"kind": "numeric", "columns": ["I2"]}, {"kind": "categorical", "columns": ["C9"]}],
        "model": {"name": "lr"},
    }
    read = pd.DataFrame({"label": [0, 1] * 10, "I2": range(20), "C9": list("ab") * 10})
    assert ctrpipe.check(config, read).passed
    assert "lacks C9" in ctrpipe.check(config, read.drop(columns="C9")).errors[0]


def test_values_become_what_set_takes():
    settings = {"training__epochs": np.int64(2), "model__hidden_units": (8, 4), "gates": {}, "seed": None}
    settings |= {"data__paths": [pathlib.Path("a.tsv")], "name": "1e-3"}
    assert overrides(settings) == (
        *("training.epochs=2", "model.hidden_units=[8, 4]", "gates={}", "seed=null"),
        *('data.paths=["a.tsv"]', 'name="1e-3"'),
    )
    grid = {"model__embedding_dim": [2, 4], "model.name": ["lr"]}
    assert grids(grid) == ("model.embedding_dim=2,4", 'model.name="lr"')
