"""A study that is killed at any of its writes, and goes on, is the study that was not killed.

The trainings are made up; what they save and report, and in which order, is a training's. Writes are those of Optuna's
storage and of checkpoints.
"""

import json
import math
import pathlib
import types
from typing import Any

import optuna
import pytest

from ctrpipe.pipeline.tune import run as tune
from ctrpipe.pipeline.tune import study as study_module
from ctrpipe.pipeline.tune import trial as trial_module
from ctrpipe.pipeline.tune.plan import TunePlan
from ctrpipe.pipeline.tune.study import PARTS, Study
from ctrpipe.pipeline.tune.summary import summarise
from tests.pipeline.tune.small_study import small_plan

EVALUATIONS, STEPS, STAGE_STEPS = 4, 3, 5
WRITES = (
    "create_new_study",
    "create_new_trial",
    "set_study_user_attr",
    "set_trial_user_attr",
    "set_trial_param",
    "set_trial_intermediate_value",
    "set_trial_state_values",
)


class Killed(BaseException):
    """What ends a process between two writes."""


class Disk:
    """All that a process writes and another one finds. Kills the process after `lives` writes."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.storage = optuna.storages.InMemoryStorage()
        self.lives = self.writes = 0
        for name in WRITES:
            setattr(self.storage, name, self._counted(getattr(self.storage, name)))
        self.storage.engine = types.SimpleNamespace(dispose=lambda: None)

    def _counted(self, write: Any) -> Any:
        def counted(*given: Any, **named: Any) -> Any:
            result = write(*given, **named)
            self.written()
            return result

        return counted

    def written(self) -> None:
        self.writes += 1
        if self.writes == self.lives:
            raise Killed


@pytest.fixture
def trains(monkeypatch):
    """Replaces what needs TensorFlow, and the rows."""
    monkeypatch.setattr(study_module, "STARTUP_TRIALS", 2)
    monkeypatch.setattr(study_module, "COMPLETE_FIRST", 2)
    monkeypatch.setattr("ctrpipe.pipeline.training.data.count_rows", lambda files: 128 * STEPS * EVALUATIONS)
    monkeypatch.setattr("ctrpipe.pipeline.training.buildable.why_impossible", lambda model, config: "")
    monkeypatch.setattr(trial_module.gc, "collect", lambda: None)
    monkeypatch.setattr(trial_module.keras.utils, "clear_session", lambda: None)

    def use(disk: Disk) -> None:
        storages = types.SimpleNamespace(RDBStorage=lambda *given, **named: disk.storage)
        monkeypatch.setattr(study_module, "optuna", types.SimpleNamespace(**{**vars(optuna), "storages": storages}))
        monkeypatch.setattr(trial_module, "train", lambda job, work, report: train(disk, job, work, report))

    return use


def train(disk: Disk, job: Any, work: pathlib.Path, report: Any) -> Any:
    """Saves each evaluation and reports it, after a first stage that is trained once. The third one is often worse."""
    rate = math.log10(job.training.learning_rate) + 2
    saved = work / "checkpoint" / "progress.json"
    done = json.loads(saved.read_text())["evaluations"] if saved.exists() else []
    if not done:
        report({"model": "stage", "step": STAGE_STEPS})
    for number in range(len(done) + 1, EVALUATIONS + 1):
        loss = 0.5 + rate**2 + 1 / number + (0.9 * (number == 3) if job.model.embedding_dim == 2 else 0)
        done.append(
            {"step": number * STEPS, "validation_log_loss": loss, "validation_auc": 1 - loss, "examples": number}
        )
        saved.parent.mkdir(parents=True, exist_ok=True)
        saved.write_text(json.dumps({"evaluations": done}))
        disk.written()
        report({"model": job.model.name, **done[-1]})
    best = min(range(EVALUATIONS), key=lambda index: done[index]["validation_log_loss"])
    return types.SimpleNamespace(history={"evaluations": done, "best": best})


def search(disk: Disk, plan: TunePlan) -> dict[str, Any]:
    """The report of the trials of a process, without times."""
    study = Study(plan, disk.folder, dict.fromkeys(PARTS, "a"))
    inputs = types.SimpleNamespace(
        training_fingerprint=lambda config, model: f"{config.training.learning_rate}-{model}"
    )
    log = types.SimpleNamespace(feature_map=None, train=[], validation=[], inputs=inputs, start_vectors="")
    tune._one_after_another(tune.Session(plan, study, log, disk.folder))
    report = summarise(plan, study).report
    return {**report, "seconds": None, "trials": [{**each, "seconds": None} for each in report["trials"]], "best": None}


@pytest.mark.slow
def test_a_study_that_is_killed_at_any_write_is_the_study_that_was_not(tmp_path, trains):
    plan = small_plan(tmp_path, trials=6)
    (tmp_path / "whole").mkdir()
    whole = Disk(tmp_path / "whole")
    trains(whole)
    expected = search(whole, plan)
    states = {trial["state"] for trial in expected["trials"]}
    assert states == {"complete", "stopped"} and [trial["number"] for trial in expected["trials"]] == list(range(6))
    assert expected["trials"][0]["steps"] == STAGE_STEPS + EVALUATIONS * STEPS
    for write in range(1, whole.writes + 1, 3):  # all of them passed; a third takes two seconds
        (tmp_path / str(write)).mkdir()
        disk = Disk(tmp_path / str(write))
        trains(disk)
        disk.lives = write
        with pytest.raises(Killed):
            search(disk, plan)
        assert search(disk, plan) == expected, f"killed at write {write}"
