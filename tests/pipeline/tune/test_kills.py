"""A study that is killed after any write and resumed gives the same report as an uninterrupted study.

Training is faked: it saves and reports the same things as a real training run, in the same order. A write goes to
Optuna's storage or to a checkpoint.
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
    """Raised after a write, to end the simulated process."""


class Disk:
    """Holds what a process writes, for the process that resumes. Raises Killed after the write number `last`."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.storage = optuna.storages.InMemoryStorage()
        self.last = self.writes = 0
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
        if self.writes == self.last:
            raise Killed


@pytest.fixture
def train_on(monkeypatch):
    """Returns a function that makes trials call `train` with a disk, without TensorFlow and without rows."""
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
    """Saves and reports each evaluation, after a first stage that is trained once.

    With embedding_dim 2 the third evaluation is worse.
    """
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
    """Runs the study on the disk to its end, and returns its report without times."""
    study = Study(plan, disk.folder, dict.fromkeys(PARTS, "a"))
    inputs = types.SimpleNamespace(
        training_fingerprint=lambda config, model: f"{config.training.learning_rate}-{model}"
    )
    log = types.SimpleNamespace(feature_map=None, train=[], validation=[], inputs=inputs, start_vectors="")
    tune._one_after_another(tune.Session(plan, study, log, disk.folder))
    report = summarise(plan, study).report
    return {**report, "seconds": None, "trials": [{**each, "seconds": None} for each in report["trials"]], "best": None}


@pytest.mark.slow
def test_a_study_killed_after_any_write_and_resumed_has_the_same_report(tmp_path, train_on):
    plan = small_plan(tmp_path, trials=6)
    (tmp_path / "whole").mkdir()
    whole = Disk(tmp_path / "whole")
    train_on(whole)
    expected = search(whole, plan)
    states = {trial["state"] for trial in expected["trials"]}
    assert states == {"complete", "stopped"} and [trial["number"] for trial in expected["trials"]] == list(range(6))
    assert expected["trials"][0]["steps"] == STAGE_STEPS + EVALUATIONS * STEPS
    for write in range(1, whole.writes + 1, 3):  # every third write takes two seconds; all of them pass too
        (tmp_path / str(write)).mkdir()
        disk = Disk(tmp_path / str(write))
        train_on(disk)
        disk.last = write
        with pytest.raises(Killed):
            search(disk, plan)
        assert search(disk, plan) == expected, f"killed at write {write}"
