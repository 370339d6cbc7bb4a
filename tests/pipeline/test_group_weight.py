"""gAUC may be weighted by impressions or clicks: a result that is kept is known by it."""

import pathlib
import types
from typing import Any

import pytest

from benchmarks.harness import leaderboard_training
from ctrpipe.pipeline.config import RunConfig, check_config
from ctrpipe.pipeline.run.inputs import RunInputs
from ctrpipe.pipeline.sweep import run as sweep_run
from ctrpipe.pipeline.sweep.plan import Point, SweepPlan
from ctrpipe.pipeline.tune import confirm
from ctrpipe.pipeline.tune.plan import Budget, make_plan
from ctrpipe.pipeline.tune.run import identity
from tests.pipeline.tune.small_study import CONFIG, write_config

INPUTS = RunInputs((), "data", {}, pathlib.Path("runs"), baseline_version="")
LOG: Any = types.SimpleNamespace(inputs=INPUTS)


def config_of(weight: str, monitor: str = "log_loss") -> RunConfig:
    sections = {key: value for key, value in CONFIG.items() if key != "search"}
    sections["evaluation"] = {"group": "C9", "group_weight": weight}
    return check_config({**sections, "training": {**CONFIG["training"], "monitor": monitor}}, (), "small.yaml")


def of_sweep(config: RunConfig, folder: pathlib.Path) -> str:
    point = Point("base", "base", {}, {}, config)
    return sweep_run._run(SweepPlan("small", config, (point,), 1, False, None), point, 0, LOG).key


def of_study(config: RunConfig, folder: pathlib.Path) -> str:
    log = folder / "log.tsv"
    log.write_text("1\n")
    plan = make_plan(write_config(folder), budget=Budget(4, None))
    return str(identity(plan, config, [str(log)], folder))


def of_confirmation(config: RunConfig, folder: pathlib.Path) -> str:
    return confirm._training("best", config, 0, LOG).key


def of_leaderboard(config: RunConfig, folder: pathlib.Path) -> str:
    return leaderboard_training.key_of(config, 1)


@pytest.mark.parametrize("key", [of_sweep, of_study, of_confirmation, of_leaderboard])
def test_another_weight_of_a_group_is_another_result(key, tmp_path):
    assert key(config_of("impressions"), tmp_path) != key(config_of("clicks"), tmp_path)
    assert key(config_of("clicks"), tmp_path) == key(config_of("clicks"), tmp_path)


def test_a_training_that_gauc_stops_is_known_by_its_weight():
    def hashes(monitor: str) -> set[str]:
        configs = [config_of(weight, monitor) for weight in ("impressions", "clicks")]
        return {INPUTS.training_fingerprint(config, config.model) for config in configs}

    assert [len(hashes(one)) for one in ("gauc", "auc_plus_gauc", "log_loss")] == [2, 2, 1]


def test_a_result_of_the_leaderboard_is_known_by_the_code_that_trains(monkeypatch):
    before = leaderboard_training.key_of(config_of("clicks"), 1)
    monkeypatch.setattr(leaderboard_training, "stage_version", lambda *modules: "another")
    assert leaderboard_training.key_of(config_of("clicks"), 1) != before
