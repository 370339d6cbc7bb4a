import pathlib
import shlex

import pytest
import yaml

from ctrpipe.common.errors import InputError
from ctrpipe.common.fingerprints import fingerprint
from ctrpipe.models.base.raw_numbers import reads_numbers
from ctrpipe.models.base.registry import available, model_class
from ctrpipe.models.text.numbert import NumberTextModel
from ctrpipe.pipeline.config import load_config
from ctrpipe.pipeline.run.run import check_options
from ctrpipe.transforms.log.section import expand_names

SMALL = {
    "name": "small",
    "data": {"columns": ["label", "n", "c"], "labels": {"ctr": "label"}},
    "features": [{"kind": "numeric", "columns": ["n"]}, {"kind": "categorical", "columns": ["c"]}],
    "model": {"name": "lr"},
}


NUMBER = {
    "data": {"columns": ["label", "n", "c", "x"], "labels": {"ctr": "label", "s": {"column": "x", "predicts": "mean"}}}
}
COUNT = {
    "data": {"columns": ["label", "n", "c", "x"], "labels": {"ctr": "label", "s": {"column": "x", "predicts": "count"}}}
}
AFTER = {
    "data": {"columns": ["label", "n", "c", "x"], "labels": {"ctr": "label", "o": {"column": "x", "after": "ctr"}}}
}


def write(tmp_path, **changes) -> pathlib.Path:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**SMALL, **changes}))
    return path


def test_ranges_of_names_expand():
    assert expand_names(["label", "I1..I3", "C9..C11"]) == ["label", "I1", "I2", "I3", "C9", "C10", "C11"]
    assert expand_names(["e08..e10", "d0..d2"]) == ["e08", "e09", "e10", "d0", "d1", "d2"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modle": 1}, r"config.yaml: modle: unknown key"),
        ({"training": {"epoch": 3}}, r"training.epoch: unknown key"),
        ({"training": {"epochs": "many"}}, r"training.epochs: .*valid integer.*'many'"),
        ({"training": {"epochs": 0}}, r"training.epochs: .*greater than or equal to 1"),
        ({"data": {**SMALL["data"], "negative_sampling": 0}}, r"data.negative_sampling: .*greater than 0"),
        ({"data": {**SMALL["data"], "negative_sampling": 1.5}}, r"data.negative_sampling: .*less than or equal to 1"),
        (
            {
                "data": {"columns": ["label", "n", "c", "buy"], "labels": {"ctr": "label", "cvr": "buy"}}
                | {"negative_sampling": 0.5}
            },
            r"negative_sampling needs a single label",
        ),
        (
            {"data": {**SMALL["data"], "negative_sampling": 0.5}, "training": {"distillation": {"teacher": "models"}}},
            r"data.negative_sampling: a teacher predicts the probabilities of all rows",
        ),
        ({"model": {}}, r"model.name: this key is required"),
        ({"gates": {"auc": {"min": float("nan")}}}, r"gates.auc.min: .*finite number"),
        ({"gates": {"auc": {"min": 75}}}, r"gates: auc: no model has 75 or more, as it is at most 1; give a lower min"),
        ({"gates": {"rig": {"min": 1.01}}}, r"rig: no model has 1.01 or more"),
        ({"gates": {"log_loss": {"max": -0.1}}}, r"log_loss: no model has -0.1 or less, as it is above 0; give a"),
        ({"gates": {"log_loss": {"max": 0}}}, r"log_loss: no model has 0 or less, as it is above 0; give a higher max"),
        ({"gates": {"rig": {"min": 1}}}, r"rig: no model has 1 or more, as it is below 1; give a lower min"),
        ({"gates": {"calibration": {"max": 0}}}, r"calibration: no model has 0 or less, as it is above 0"),
        (
            {"gates": {"calibration": {"min": 1.1}}},
            r"calibration: min: 1.1 blocks a perfect model, which has 1; give a lower min",
        ),
        (
            {"gates": {"calibration": {"min": 0.5, "max": 0.9}}},
            r"calibration: max: 0.9 blocks a perfect model, which has 1; give a higher max",
        ),
        ({"gates": {"auc": {"min": 0.7, "max": 0.7}}}, r"gates.auc: min equals max, and no model has exactly 0.7"),
        ({"gates": {"max_drop": {"auc": 1}}}, r"max_drop: auc: 1 blocks no model, as it drops by at most 1"),
        ({"gates": {"max_drop": {"auc": -1}}}, r"max_drop: auc: no model rises by 1, as it rises by less"),
        ({**NUMBER, "gates": {"numbers": {"s": {"mae": {"max": 0}}}}}, r"mae: no model has 0 or less"),
        ({**NUMBER, "gates": {"numbers": {"s": {"r2": {"min": 1}}}}}, r"r2: no model has 1 or more"),
        (
            {**COUNT, "gates": {"numbers": {"s": {"calibration": {"max": 0}}}}},
            r"calibration: no model has 0 or less",
        ),
        ({**NUMBER, "gates": {"numbers": {"s": {"r2": {"min": 2}}}}}, r"r2: no model has 2 or more"),
        (
            {"gates": {"auc": {"min": -1}}},
            r"gates: auc: min: -1 blocks no model, as it is at least 0; give a higher min",
        ),
        (
            {"gates": {"rig": {"max": 1.5}}},
            r"gates: rig: max: 1.5 blocks no model, as it is below 1; give a lower max",
        ),
        ({"gates": {"calibration": {"min": -0.1, "max": 1.1}}}, r"calibration: min: -0.1 blocks no model"),
        ({"gates": {"max_drop": {"auc": 1.5}}}, r"max_drop: auc: 1.5 blocks no model, as it drops by at most 1"),
        ({"gates": {"max_drop": {"gauc": -2}}}, r"max_drop: gauc: no model rises by 2, as it"),
        ({"gates": {"training_noise": {"auc": 0.6}}}, r"training_noise: auc: no standard deviation of it is 0.6"),
        ({**NUMBER, "gates": {"numbers": {"s": {"mae": {"min": -3, "max": 9}}}}}, r"mae: min: -3 blocks no model"),
        ({"gates": {"auc": {}}}, r"gates.auc: give min, max or both"),
        ({"evaluation": {"slices": ["z"]}}, r"evaluation.slices: z is not a feature column$"),
        ({"gates": {"auc": {"min": 75}}}, r"auc: no model has 75 or more, as it is at most 1; give a lower min"),
        (
            {"gates": {"calibration": {"slices": ["c"], "max_error": 0.1}}},
            r"gates.calibration.slices: add c to evaluation.slices",
        ),
        ({"gates": {"calibration": {"slices": ["c"]}}}, r"give slices and max_error together"),
        ({"gates": {"auc": {"confidence": 0.95}}}, r"give min, max or both"),
        ({"gates": {"auc": {"min": 0.7, "confidence": 95}}}, r"less than 1"),
        (
            {"calibration": {"method": "platt"}, "training": {"refit": True}},
            r"calibration: training.refit trains on the validation rows",
        ),
        ({"calibration": {"method": "platt", "by": ["z"]}}, r"calibration.by: z is not a feature column"),
        ({"calibration": {"method": "platt", "by": ["c", "c"]}}, r"calibration.by: a column is named twice"),
        (
            {
                "features": [{"kind": "numeric", "columns": ["n"], "transform": "standardize"}],
                "calibration": {"method": "platt", "by": ["n"]},
            },
            r"calibration.by: n does not have one of a few values",
        ),
        ({"calibration": {"method": "spline"}}, r"calibration.method: .*'isotonic', 'beta', 'platt' or 'histogram'"),
        ({"serving": {"warmup_requests": 250}}, r"serving.warmup_requests: .*less than or equal to 249"),
        ({"serving": {"encoder_precision": "int8"}}, r"serving.encoder_precision: there is no text"),
        ({"serving": {"encoder_precision": "int4"}}, r"serving.encoder_precision: .*'float32', 'bfloat16', 'int8'"),
        (
            {
                "features": [{"kind": "text", "columns": ["c"], "length": 8, "tokens": "vocabulary", "separator": " "}]
                + [{"kind": "numeric", "columns": ["n"]}],
                "serving": {"explain": True, "encoder_precision": "int8"},
            },
            r"serving.explain: gradients need float32",
        ),
        ({"statistics": {"max_rows": 10}}, r"statistics.max_rows: .*greater than or equal to 1000"),
        ({"monitoring": {"columns": {"z": 0.1}}}, r"monitoring.columns: z is neither a feature column nor a label"),
        ({"monitoring": {"attributions": {"z": 0.1}}}, r"monitoring.attributions: z is not an explained column"),
        ({"monitoring": {"max_distance": {"numeric": 2}}}, r"monitoring.max_distance.numeric: .*less than or equal"),
        ({"gates": {"numbers": {"s": {"mae": {"max": 1}}}}}, r"gates.numbers: s is not a task that predicts a number"),
        ({"gates": {"numbers": {"s": {}}}}, r"give limits of rmse, mae, r2 or calibration"),
        (
            {**NUMBER, "gates": {"numbers": {"s": {"r2": {"min": 0, "confidence": 0.9}}}}},
            r"r2: confidence applies to metrics of clicks",
        ),
        ({**NUMBER, "training": {"loss": {"s": "focal"}}}, r"training.loss: s predicts a number, whose loss"),
        ({**NUMBER, "training": {"optimizer": "lbfgs"}}, r"training.optimizer: lbfgs is for tasks of clicks"),
        ({**NUMBER, "model": {"name": "esmm"}}, r"model: esmm predicts probabilities only, and s is a number"),
        ({**NUMBER, "evaluation": {"baseline": {"name": "qnn"}}}, r"evaluation.baseline: qnn predicts probabilities"),
        (
            {**AFTER, "model": {"name": "esmm"}},
            r"model: esmm learns o from all impressions; remove",
        ),
        ({"features": [{"kind": "colour", "columns": ["n"]}]}, r"features.0"),
        ({"features": [{"kind": "numeric", "columns": ["absent"]}]}, r"data.columns does not list absent"),
        ({"features": [{"kind": "categorical", "columns": ["label"]}]}, r"label must not be a feature"),
    ],
)
def test_a_mistake_names_file_key_and_expectation(tmp_path, changes, message):
    with pytest.raises(InputError, match=message) as error:
        load_config(write(tmp_path, **changes))
    assert "\n" not in str(error.value)


def test_a_key_that_yaml_takes_for_a_truth_value_is_a_key(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text() + "calibration: {method: platt, on: validation}\n")
    assert load_config(path).calibration.on == "validation"
    path.write_text(path.read_text().replace("on: validation", "on: validation, on: validation"))
    with pytest.raises(InputError, match="the key on appears twice"):
        load_config(path)


def test_a_key_that_comes_twice_is_a_mistake(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text() + "training: {epochs: 1}\ntraining: {epochs: 2}\n")
    with pytest.raises(InputError, match="the key training appears twice") as error:
        load_config(path)
    assert "\n" not in str(error.value)


def test_set_overrides_and_refuses_keys_that_do_not_exist(tmp_path):
    config = load_config(write(tmp_path), ("training.epochs=2", "model.l2=0.5", "gates.auc.min=0.6"))
    assert config.training.epochs == 2 and config.model.hyperparameters == {"l2": 0.5}
    assert config.gates.auc and config.gates.auc.min == 0.6
    for setting in ("training.epoch=2", "name.first=1", "training.epochs=x", "training.epochs", "=1"):
        with pytest.raises(InputError):
            load_config(write(tmp_path), (setting,))


def test_a_mistake_of_an_override_names_the_override(tmp_path):
    path = write(tmp_path)
    for settings, message in (
        (("training.epochs=x",), "^--set training.epochs=x: training.epochs: Input should be a valid integer"),
        (("training.monitor=logloss",), "Received: 'logloss'; did you mean log_loss\\?$"),
        (("training.optimizer=Adam",), "Received: 'Adam'; did you mean adam\\?$"),
        (("training.optimizer=7",), "Received: 7$"),
        (("data.split.by=tme",), "Received: 'tme'; did you mean time\\?$"),
        (("features=[{columns: [a], kind: Numeric}]",), "expected tags: .*; did you mean numeric\\?$"),
        (("data.format=parqet",), "and no installed package has such a reader; did you mean parquet\\?$"),
        (("training={epochs: -1}", "name=a"), "^--set training={epochs: -1}: training.epochs: Input should be greater"),
        (("model=lr",), r"^--set model=lr: model: expected keys and their values, or \{name: lr\}. Received: 'lr'$"),
        (("gates=",), r"^--set gates=: gates: expected keys and their values, or \{\}. Received: None$"),
        (("name=a", "training.epoch=2"), "^--set training.epoch=2: training.epoch: unknown key"),
    ):
        with pytest.raises(InputError, match=message):
            load_config(path, settings)
    path.write_text(path.read_text() + "gates: 3\n")
    with pytest.raises(InputError, match=f"^{path}: gates: expected keys"):
        load_config(path, ("training.epochs=2",))


def test_a_number_may_be_written_with_an_exponent_alone(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("model: {name: lr, l2: 1e-6}\n" + yaml.safe_dump({k: v for k, v in SMALL.items() if k != "model"}))
    config = load_config(path, ("model.linear_rate=2E3", "name=e1"))
    assert config.model.hyperparameters == {"l2": 1e-6, "linear_rate": 2000.0} and config.name == "e1"


def test_files_that_are_no_configuration_are_refused(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        load_config(tmp_path / "absent.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    (tmp_path / "broken.yaml").write_text("a: [1")
    for name, message in (("list", "expected a mapping"), ("broken", "not valid YAML")):
        with pytest.raises(InputError, match=message):
            load_config(tmp_path / f"{name}.yaml")


def write_family(folder, **files: str) -> pathlib.Path:
    """Writes files of YAML and SMALL as small.yaml, and returns the first."""
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL))
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / f"{next(iter(files))}.yaml"


def test_a_file_says_what_it_changes_of_those_that_it_extends(tmp_path):
    (tmp_path / "below").mkdir()
    leaf = write_family(
        tmp_path,
        leaf="{extends: below/middle.yaml, name: leaf, model: {l2: 0.5}, training: {patience: 7}}",
        root="{extends: small.yaml, training: {epochs: 3, patience: 4, batch_size: 5}, evaluation: {slices: [c]}}",
    )
    (tmp_path / "below" / "middle.yaml").write_text(
        "{extends: ../root.yaml, features: [{kind: categorical, columns: [c]}], training: {epochs: 9}}"
    )
    config = load_config(leaf, ("training.batch_size=6",))
    assert config.name == "leaf"
    assert config.model.hyperparameters == {"l2": 0.5} and config.model.name == "lr"
    assert config.feature_columns == ["c"]
    assert (config.training.epochs, config.training.patience, config.training.batch_size) == (9, 7, 6)
    assert config.evaluation.slices == ["c"]


def test_where_a_key_stands_changes_nothing_that_is_hashed(tmp_path):
    leaf = write_family(tmp_path, leaf="{extends: small.yaml, training: {epochs: 3}, model: {l2: 0.5}}")
    (tmp_path / "whole.yaml").write_text(
        yaml.safe_dump({**SMALL, "training": {"epochs": 3}, "model": {"l2": 0.5, "name": "lr"}})
    )
    assert fingerprint(load_config(leaf)) == fingerprint(load_config(tmp_path / "whole.yaml"))
    assert fingerprint(load_config(leaf)) != fingerprint(load_config(tmp_path / "small.yaml"))


def test_null_and_an_empty_list_replace_what_a_file_extends(tmp_path):
    leaf = write_family(
        tmp_path,
        leaf="{extends: root.yaml, training: {plateau: null}, evaluation: {slices: []}}",
        root="{extends: small.yaml, training: {plateau: {factor: 0.5}}, evaluation: {slices: [c]}}",
    )
    assert load_config(leaf).training.plateau is None and load_config(leaf).evaluation.slices == []


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a": "extends: absent.yaml"}, r"a.yaml: extends: .*absent.yaml: cannot read .*: No such file"),
        ({"a": "extends: ."}, r"a.yaml: extends: .*: cannot read .*: Is a directory"),
        ({"a": "extends: s3://b/c.yaml"}, r"a.yaml: extends: s3://b/c.yaml: extends takes a local path; copy"),
        ({"a": "extends: a.yaml"}, r"a.yaml: extends: .*a.yaml -> .*a.yaml is a circle"),
        (
            {"a": "extends: b.yaml", "b": "extends: c.yaml", "c": "extends: b.yaml"},
            r"c.yaml: .*a.yaml -> .*b.yaml is a cir",
        ),
        ({"a": "extends: b.yaml", "b": "[1]"}, r"a.yaml: extends: .*b.yaml: expected a mapping"),
        ({"a": "extends: b.yaml", "b": ""}, r"a.yaml: extends: .*b.yaml: expected a mapping"),
        ({"a": "extends: b.yaml", "b": "a: [1"}, r"a.yaml: extends: .*b.yaml: not valid YAML"),
        ({"a": "extends: [b.yaml]"}, r"a.yaml: extends: expected the path of one YAML file. Received: \['b.yaml'\]"),
        ({"a": "extends:"}, r"a.yaml: extends: expected the path of one YAML file. Received: None"),
        ({"a": 'extends: ""'}, r"a.yaml: extends: expected the path"),
        ({"a": 'extends: "a\\0b"'}, r"a.yaml: extends: expected the path"),
        ({"a": "{extends: small.yaml, model: {extends: small.yaml, name: []}}"}, r"a.yaml: model.name: "),
        (
            {"a": "{extends: b.yaml, training: {epochs: 2}}", "b": "{extends: small.yaml, training: {epoch: 3}}"},
            r"/b.yaml: training.epoch: unknown",
        ),
        (
            {"a": "{extends: b.yaml, training: {epoch: 2}}", "b": "{extends: small.yaml, training: {epoch: 3}}"},
            r"/a.yaml: training.epoch: unknown",
        ),
        ({"a": "{extends: b.yaml}", "b": "{name: b}"}, r"/a.yaml: data: this key is required"),
    ],
)
def test_a_mistake_in_what_a_file_extends_is_one_line_that_names_the_file(tmp_path, files, message):
    with pytest.raises(InputError, match=message) as error:
        load_config(write_family(tmp_path, **files))
    assert "\n" not in str(error.value)


TEXT = {
    "data": {"columns": ["label", "n", "p", "t"], "labels": {"ctr": "label"}},
    "features": [
        {"kind": "numeric", "columns": ["n"]},
        {"kind": "numeric", "columns": ["p"], "role": "position"},
        {"kind": "text", "columns": ["t"], "length": 8, "tokens": "vocabulary", "separator": " "},
    ],
}


@pytest.mark.parametrize(
    ("changes", "columns"),
    [
        ({"model": {"name": "numbert"}}, ["n"]),
        ({"model": {"name": "numbert_uni_attention"}}, ["n"]),
        ({"model": {"name": "bert4ctr"}}, []),
        ({"model": {"name": "numbert_uni_attention_reduced"}}, []),
        ({"model": {"name": "bert4ctr"}, "evaluation": {"baseline": {"name": "numbert"}}}, ["n"]),
        ({"model": {"name": "my_models:Own"}, "raw_numbers": True}, ["n"]),
    ],
)
def test_numbers_are_packed_where_a_model_reads_them(tmp_path, changes, columns):
    assert load_config(write(tmp_path, **TEXT, **changes)).log_spec.written_columns == columns


def test_every_model_that_writes_numbers_is_known_to_the_configuration():
    writing = [info.name for info in available() if issubclass(model_class(info.name), NumberTextModel)]
    assert writing == [info.name for info in available() if reads_numbers(info.name)] != []


@pytest.mark.parametrize("setting", ["training.epochs", "=3", ""])
def test_an_override_needs_key_and_value(tmp_path, setting):
    with pytest.raises(InputError, match="^--set .*: expected KEY=VALUE"):
        load_config(write(tmp_path), (setting,))


def test_trees_that_are_to_explain_their_answers_are_refused(tmp_path):
    config = load_config(write(tmp_path, model={"name": "cascading_nn_gbdt"}, serving={"explain": True}))
    with pytest.raises(InputError, match="serving.explain: boosted trees have no gradients") as error:
        check_options(config)
    assert "\n" not in str(error.value)
    check_options(load_config(write(tmp_path, serving={"explain": True})))


@pytest.mark.parametrize("where", ["slices: [v]", "tail: {columns: [v]}"])
def test_no_slice_is_by_a_vector(tmp_path, where):
    features = "[{kind: categorical, columns: [ad]}, {kind: vector, columns: [v], length: 4}]"
    data = "{format: parquet, labels: {ctr: click}}"
    text = f"name: x\ndata: {data}\nfeatures: {features}\nmodel: {{name: lr}}\nevaluation: {{{where}}}\n"
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError, match="v is a vector, whose values do not repeat between rows"):
        load_config(tmp_path / "c.yaml")


def test_a_log_in_place_of_a_configuration_is_told_what_drafts_one(tmp_path):
    for name, content in (("a b.tsv", b"0\t1\n1\t2\n"), ("log.csv", b"a,b\n1,2\n"), ("log.parquet", b"PAR1\xff\xfe")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError) as raised:
            load_config(tmp_path / name)
        command = str(raised.value).partition("; `")[2].partition("`")[0]
        assert shlex.split(command) == ["ctrpipe", "init", str(tmp_path / name)]
    for name, said in (
        (".", "Is a directory; name its YAML file"),
        ("absent.yaml", "No such file or directory; check"),
    ):
        with pytest.raises(InputError, match=said) as raised:
            load_config(tmp_path / name)
        assert "init" not in str(raised.value)


@pytest.mark.parametrize(
    ("gates", "expected"),
    [
        ({"max_drop": None}, {}),
        ({"max_drop": {"auc": None, "log_loss": 0.1}}, {"log_loss": 0.1}),
        ({"numbers": None, "training_noise": None, "rig": None}, {"auc": 0.0}),
    ],
)
def test_a_gate_that_is_null_is_none(tmp_path, gates, expected):
    config = load_config(write(tmp_path, gates=gates))
    assert config.gates.max_drop == expected and not config.gates.numbers and not config.gates.training_noise


@pytest.mark.parametrize(
    ("setting", "key"),
    [
        ("gates.auc={min: true}", "gates.auc: min"),
        ("gates.max_drop={auc: yes}", "gates: max_drop"),
        ("training.epochs=true", "training: epochs"),
        ("training.learning_rate=on", "training: learning_rate"),
        ("seed=false", "seed"),
        ("data.split.validation=true", "data.split: validation"),
        ("data.max_bad_row_rate=false", "data: max_bad_row_rate"),
        (
            "features=[{kind: numeric, columns: [n], transform: quantile_bucketize, buckets: true}]",
            r"features\.0.*: buckets",
        ),
        ("statistics.max_rows=true", "statistics: max_rows"),
    ],
)
def test_true_is_no_number(tmp_path, setting, key):
    with pytest.raises(InputError, match=rf"{key}: expected a number, and no true or false"):
        load_config(write(tmp_path), (setting,))


def test_true_is_a_value_where_it_may_be_one(tmp_path):
    settings = ("data.labels={ctr: {column: label, positive: [true]}}", "model={name: dcn_v2, use_linear: true}")
    config = load_config(write(tmp_path), settings)
    assert config.data.labels["ctr"].positive == [True] and config.model.hyperparameters == {"use_linear": True}
