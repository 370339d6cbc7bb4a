"""The commands that a run ends with, and the request with a row of its log."""

import json

import numpy as np
import pytest

from ctrpipe.pipeline.config import RunConfig, load_config
from ctrpipe.pipeline.run.next_steps import REQUEST, after_block, after_push, lifted, write_request

CONFIG = {
    "name": "next",
    "data": {"format": "csv", "header": True, "labels": {"ctr": "click"}},
    "features": [
        {"kind": "numeric", "columns": ["price", "age"]},
        {"kind": "categorical", "columns": ["shop", "size"]},
    ],
    "model": {"name": "lr"},
    "serving": {"model_name": "ads"},
}


def config(**changes) -> RunConfig:
    return RunConfig.model_validate({**CONFIG, **changes})


def test_a_request_has_the_first_good_row_of_the_log(tmp_path):
    (tmp_path / "log.csv").write_text('click,price,age,shop,size\n0,x,1,bad,1\n1,2.5,,Zürich\'s "A",38\n0,1,2,b,3\n')
    write_request(config(), [str(tmp_path / "log.csv")], tmp_path)
    body = (tmp_path / REQUEST).read_text()
    request = json.loads(body)  # NaN is no JSON, but what TF Serving and Python read
    assert request["signature_name"] == "serving_raw"
    age = request["inputs"].pop("age")
    assert np.isnan(age).all() and len(age) == 1
    assert request["inputs"] == {"price": [2.5], "shop": ['Zürich\'s "A"'], "size": ["38"]}


def test_a_log_without_a_good_row_has_no_request(tmp_path):
    (tmp_path / "log.csv").write_text("click,price,age,shop,size\n0,x,1,bad,1\n")
    write_request(config(), [str(tmp_path / "log.csv")], tmp_path)
    assert not (tmp_path / REQUEST).exists()
    commands = after_push(config(), ["log.csv"], "runs/next", tmp_path)
    assert [command[1] for command in commands] == ["serve", "predict", "explain", "score", "report"]


@pytest.mark.parametrize("left", [None, "other,columns\n1,2\n"])
def test_a_log_that_is_gone_after_the_push_costs_the_request_alone(tmp_path, capsys, left):
    (tmp_path / REQUEST).write_text("of an earlier run")
    if left:
        (tmp_path / "log.csv").write_text(left)
    write_request(config(), [str(tmp_path / "log.csv")], tmp_path)
    assert not (tmp_path / REQUEST).exists()
    said = capsys.readouterr()
    assert f"the run is finished, but {REQUEST} is not written" in said.out + said.err


@pytest.mark.parametrize("model", ["lr", "mine:Own"])
def test_the_commands_after_a_run_name_its_model_and_its_log(tmp_path, model):
    (tmp_path / REQUEST).write_text("{}")
    commands = after_push(config(model={"name": model}), ["day *.csv", "other.csv"], tmp_path, tmp_path)
    url = "http://127.0.0.1:8501/v1/models/ads"
    assert [command[1:] for command in commands] == [
        ["serve", "--model_base_path", f"{tmp_path}/models/ads", "--model_name", "ads", "--rest_api_port", "8501"],
        ["-d", f"@{tmp_path}/{REQUEST}", f"{url}:predict"],
        ["predict", "--url", url, "--input", "day *.csv", "--rows", "5"],
        ["explain", str(tmp_path), *(["--trust"] if ":" in model else [])],
        ["score", "--model", str(tmp_path), "--input", "day *.csv", "--output", "scores"],
        ["report", str(tmp_path), "--open"],
    ]
    stored = after_push(config(), ["log.csv"], "s3://bucket/run", tmp_path)
    assert [command[1] for command in stored] == ["serve", "predict", "explain", "score"]
    assert stored[0][3] == "s3://bucket/run/models/ads"
    # A run in a store does not know which rows were its test rows.
    assert stored[2][1:] == ["explain", "s3://bucket/run", "--data", "log.csv"]


def test_the_commands_after_a_run_name_a_test_file_where_the_split_names_the_files(tmp_path):
    files = {"train": ["day_0"], "validation": ["day_1"], "test": ["day_2"]}
    data = {**CONFIG["data"], "split": {"by": "files", "files": files}}
    commands = after_push(config(data=data), [], tmp_path, tmp_path)
    assert [command[command.index("--input") + 1] for command in commands if "--input" in command] == ["day_2"] * 2
    commands = after_push(config(data=data), [], "s3://bucket/run", tmp_path)
    assert commands[2][1:] == ["explain", "s3://bucket/run", "--data", "day_2"]


def gate(metric: str, kind: str = "absolute", passed: bool = False) -> dict:
    return {"metric": metric, "kind": kind, "passed": passed}


def test_a_failed_gate_is_lifted_by_its_own_key_and_the_setting_is_valid(tmp_path):
    gates = [
        gate("rig"),
        gate("auc", passed=True),
        gate("auc", "change"),
        gate("log_loss", "change"),
        gate("ecs", "change"),
    ]
    gates += [gate("calibration", "slice"), gate("drift", "drift")]
    settings = [
        *("gates.rig=null", "gates.max_drop={}", "gates.ecs=null"),
        *("gates.calibration.slices=[]", "gates.calibration.max_error=null", "monitoring.block=false"),
    ]
    strict = {"rig": {"min": 0.5}, "calibration": {"min": 0.9, "slices": ["shop"], "max_error": 0.1}}
    given = {**CONFIG, "gates": strict, "evaluation": {"slices": ["shop"]}}
    configured = RunConfig.model_validate(given).gates
    assert lifted(gates, configured) == settings and lifted([gate("auc", passed=True)], configured) == []
    of_packages = [gate("no worse", "hook"), gate("fair", "hook", passed=True), gate("auc", "hook", passed=True)]
    assert lifted(of_packages, configured) == ["hooks.gates=[fair,auc]"]
    assert lifted(of_packages[:1], configured) == ["hooks.gates=[]"]
    loaded = load_config(given, tuple(settings))
    assert loaded.gates.rig is None and not loaded.gates.max_drop and loaded.gates.calibration.min == 0.9
    assert not loaded.gates.calibration.slices and not loaded.monitoring.block
    (tmp_path / "report_data").mkdir()
    (tmp_path / "report_data" / "gates.json").write_text(json.dumps(gates[:2]))
    look, page, lift = after_block(["run", "a b.yaml", "--data", "x.csv"], config(), "runs/next", tmp_path)
    assert look[1:] == ["explain", "runs/next"] and page[1:] == ["report", "runs/next", "--open"]
    assert lift[1:] == ["run", "a b.yaml", "--data", "x.csv", "--set", "gates.rig=null"]


NUMBERS = {"s": {"mae": {"max": 3.0}, "r2": {"min": 0.0}}, "t": {"rmse": {"max": 2.0}}}
SLICED = {"slices": ["shop"], "max_error": 0.1}


@pytest.mark.parametrize(
    ("failed", "given", "settings"),
    [
        ([("calibration", "slice")], {"calibration": SLICED}, ["gates.calibration=null"]),
        (
            [("calibration", "limit"), ("calibration", "slice")],
            {"calibration": {"min": 0.9, **SLICED}},
            ["gates.calibration=null"],
        ),
        ([("s mae", "limit")], {"numbers": NUMBERS}, ["gates.numbers.s.mae=null"]),
        (
            [("t rmse", "limit")],
            {"numbers": NUMBERS},
            ['gates.numbers={"s": {"mae": {"max": 3.0}, "r2": {"min": 0.0}}}'],
        ),
        (
            [("s mae", "hook"), ("t rmse", "limit")],
            {"numbers": NUMBERS},
            ["hooks.gates=[]", 'gates.numbers={"s": {"mae": {"max": 3.0}, "r2": {"min": 0.0}}}'],
        ),
        (
            [("s r2", "limit"), ("t rmse", "limit"), ("s mae", "limit")],
            {"numbers": NUMBERS},
            ["gates.numbers={}"],
        ),
    ],
)
def test_a_gate_that_loses_its_last_limit_is_removed(failed, given, settings):
    labels = {"ctr": "click", **{task: {"column": task, "predicts": "mean"} for task in NUMBERS}}
    described = {
        **CONFIG,
        "data": {**CONFIG["data"], "labels": labels},
        "model": {"name": "mmoe"},
        "evaluation": {"slices": ["shop"]},
        "gates": given,
    }
    configured = RunConfig.model_validate(described).gates
    assert lifted([gate(*each) for each in failed], configured) == settings
    load_config(described, tuple(settings))
