"""A study's trials: their order, what stops and refuses them, and that nothing of them is lost."""

import math
import sqlite3

import pytest
from optuna.trial import TrialState

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.tune import study as study_module
from ctrpipe.pipeline.tune.study import PARTS, STUDY, Study
from ctrpipe.pipeline.tune.summary import importance, summarise
from ctrpipe.pipeline.tune.trial import TrialResult
from tests.pipeline.tune.small_study import CONFIG, small_plan

SEARCH = {"training.learning_rate": {"log": [1e-3, 1e-1]}}
IDENTITY = dict.fromkeys(PARTS, "a")


@pytest.fixture
def soon(monkeypatch) -> None:
    """The sampler learns, and trials are stopped, from the third trial on."""
    monkeypatch.setattr(study_module, "STARTUP_TRIALS", 2)
    monkeypatch.setattr(study_module, "COMPLETE_FIRST", 2)


def loss(parameters) -> float:
    """A log loss that is lowest at a rate of 0.01, an embedding_dim of 4 and 16-8 hidden units."""
    rate = math.log10(parameters["training.learning_rate"]) + 2
    return (
        0.5
        + rate**2
        + 0.1 * (parameters["model.embedding_dim"] == 2)
        + 0.05 * (parameters["model.hidden_units"] == "8")
    )


def result(value: float, steps: int = 10) -> TrialResult:
    return TrialResult(steps, {"validation_auc": 1 - value, "validation_log_loss": value, "examples": 100})


def work(study: Study, most: int = 1000) -> list[dict]:
    """The points of trials that are run as `ctrpipe tune` runs them, without training."""
    points = []
    while len(points) < most and (trial := study.ask()):
        points.append(trial.params)
        value, stopped = loss(trial.params), False
        for evaluation in range(1, 5):
            stopped = study.report(trial, evaluation, value + 1 / evaluation)
            if stopped:
                break
        study.tell(trial, TrialResult(evaluation, None, stopped=True) if stopped else result(value), 1.0)
    return points


@pytest.mark.slow
def test_the_first_trial_is_the_configuration_s_own_and_the_search_gets_better(tmp_path):
    study = Study(small_plan(tmp_path, trials=30), tmp_path, IDENTITY)
    points = work(study)
    own = {"model.embedding_dim": 4, "model.hidden_units": "8", "training.learning_rate": 0.01}
    assert points[0] == own and len(points) == 30
    assert study.best.value == min(loss(trial.params) for trial in study.finished)
    # Twenty of thirty trials are the model's, not drawn at random: it has learnt what is good.
    assert study.best.params["model.hidden_units"] == "16-8" and study.best.value < loss(own)
    stopped = [trial for trial in study.finished if trial.state == TrialState.PRUNED]
    assert 5 < len(stopped) < 25 and all(len(trial.intermediate_values) < 4 for trial in stopped)
    assert not study.exhausted and not study.is_cut


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trials_and_another_one_others(tmp_path, soon):
    points = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        (tmp_path / name).mkdir()
        points.append(work(Study(small_plan(tmp_path, trials=5, seed=seed), tmp_path / name, IDENTITY)))
    assert points[0] == points[1] and points[0][1:] != points[2][1:]


@pytest.mark.slow
@pytest.mark.parametrize("cut_after", [0, 4])
def test_a_study_that_was_killed_goes_on_as_if_it_had_not_been(tmp_path, soon, cut_after):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    plan = small_plan(tmp_path, trials=6)
    whole = work(Study(plan, tmp_path / "whole", IDENTITY))
    killed = Study(plan, tmp_path / "cut", IDENTITY)
    done = work(killed, cut_after)
    running = killed.ask()
    killed.report(running, 1, 0.7)
    del killed  # neither told nor closed, as when the process is killed
    again = Study(plan, tmp_path / "cut", IDENTITY)
    assert again.interrupted == 1 and len(again.finished) == cut_after
    trial = again.ask()
    assert trial.params == running.params == whole[cut_after]
    # What was reported before is known: the training goes on from its checkpoint and does not report it again.
    assert again.optuna_study.get_trials()[trial.number].intermediate_values == {1: 0.7}
    again.report(trial, 1, 0.9)
    assert again.optuna_study.get_trials()[trial.number].intermediate_values == {1: 0.7}
    again.tell(trial, result(loss(trial.params)), 1.0)
    rest = work(again)
    assert len(done) + 1 + len(rest) == 6 and len(again.finished) == 6
    if cut_after == 0:  # a whole trial in place of one that would be stopped changes what comes after it
        assert [done, rest] == [[], whole[1:]]


@pytest.mark.slow
def test_a_larger_budget_adds_trials_and_a_spent_one_adds_none(tmp_path):
    first = work(Study(small_plan(tmp_path, trials=5), tmp_path, IDENTITY))
    study = Study(small_plan(tmp_path, trials=5), tmp_path, IDENTITY)
    assert study.ask() is None and len(study.finished) == 5
    more = Study(small_plan(tmp_path, trials=9), tmp_path, IDENTITY)
    assert len(work(more)) == 4 and [trial.params for trial in more.finished][:5] == first


@pytest.mark.slow
def test_a_point_is_tried_once_and_a_small_space_ends(tmp_path):
    search = {"model.embedding_dim": [2, 4], "model.hidden_units": [[8], [16, 8]], "training.learning_rate": [0.01]}
    study = Study(small_plan(tmp_path, trials=50, search=search), tmp_path, IDENTITY)
    points = work(study)
    assert len(points) == 4 and len({str(point) for point in points}) == 4 and study.exhausted


def test_time_is_spent_over_calls_but_a_study_has_a_result(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(study_module.time, "monotonic", lambda: clock[0])
    plan = small_plan(tmp_path, trials=None, seconds=100)
    study = Study(plan, tmp_path, IDENTITY)
    first = study.ask()
    clock[0] = 130.0
    assert not study.is_over_time  # nothing is complete: the first trial may end
    study.tell(first, result(0.6), 130.0)
    assert study.is_over_time and study.ask() is None
    clock[0] = 1000.0  # the time between two calls does not count
    again = Study(plan, tmp_path, IDENTITY)
    assert again.seconds == 130.0 and again.ask() is None
    larger = Study(small_plan(tmp_path, trials=None, seconds=400), tmp_path, IDENTITY)
    assert larger.ask() is not None  # half of the time at most is left for the trainings at the end
    short = Study(small_plan(tmp_path, trials=None, seconds=250), tmp_path, IDENTITY)
    assert short.is_over_time and not short.is_spent


@pytest.mark.slow
def test_a_study_of_something_else_stays_as_it_is(tmp_path):
    plan = small_plan(tmp_path, trials=3)
    study = Study(plan, tmp_path, IDENTITY)
    work(study)
    study.close()
    before = (tmp_path / STUDY).read_bytes()
    for part, name in PARTS.items():
        with pytest.raises(InputError, match=f"holds a study of another {name}; choose another --output") as error:
            Study(plan, tmp_path, {**IDENTITY, part: "b"})
        assert "\n" not in str(error.value) and (tmp_path / STUDY).read_bytes() == before
    assert len(Study(plan, tmp_path, IDENTITY).finished) == 3


def test_a_damaged_database_is_one_line_and_stays_as_it_is(tmp_path):
    (tmp_path / STUDY).write_bytes(b"no database" * 100)
    with pytest.raises(InputError, match="study.sqlite: not a study of this version .*not a database") as error:
        Study(small_plan(tmp_path), tmp_path, IDENTITY)
    assert "\n" not in str(error.value) and (tmp_path / STUDY).read_bytes() == b"no database" * 100


def test_another_database_is_not_taken_for_a_study(tmp_path):
    with sqlite3.connect(tmp_path / STUDY) as database:
        database.execute("CREATE TABLE version_info (word TEXT)")
    with pytest.raises(InputError, match="not a study of this version"):
        Study(small_plan(tmp_path), tmp_path, IDENTITY)


def test_a_refused_trial_costs_nothing_and_is_no_result(tmp_path):
    plan = small_plan(tmp_path, trials=2)
    study = Study(plan, tmp_path, IDENTITY)
    study.refuse(study.ask(), "p99 of 9.00 ms is above 5 ms", p99_ms=9.0)
    with pytest.raises(InputError, match="1 were refused, the last as p99 of 9.00 ms.*the fastest 9.00 ms"):
        summarise(plan, study)
    trial = study.ask()
    study.tell(trial, result(0.6), 1.0)
    report = summarise(plan, study).report
    assert [each["state"] for each in report["trials"]] == ["refused", "complete"] and report["steps"] == 10
    assert report["trials"][0]["p99_ms"] == 9.0 and report["best"]["number"] == trial.number


def test_a_loss_that_is_no_number_is_no_result(tmp_path):
    plan = small_plan(tmp_path)
    study = Study(plan, tmp_path, IDENTITY)
    trial = study.ask()
    study.report(trial, 1, math.nan)  # of an AUC that is not defined
    study.tell(trial, TrialResult(7, None, failure="lr: the training loss is not a finite number in epoch 1"), 1.0)
    study.tell(study.ask(), result(0.6), 1.0)
    trials = summarise(plan, study).report["trials"]
    assert (trials[0]["state"], trials[0]["steps"]) == ("refused", 7)
    assert trials[0]["refused"] == "lr: the training loss is not a finite number in epoch 1"
    assert trials[1]["state"] == "complete"


def test_a_trial_has_the_metrics_of_the_tasks_after_the_first(tmp_path):
    labels = {"ctr": "label", "watch": {"column": "I3", "predicts": "count"}}
    features = [{"kind": "categorical", "columns": ["C9"]}]
    data = {**CONFIG["data"], "labels": labels}
    plan = small_plan(tmp_path, data=data, features=features, model={"name": "mmoe"}, search=SEARCH)
    study = Study(plan, tmp_path, IDENTITY)
    best = {"validation_auc": 0.6, "validation_log_loss": 0.4, "validation_watch_rmse": 2.5, "examples": 9}
    study.tell(study.ask(), TrialResult(3, best), 1.0)
    report = summarise(plan, study).report
    assert report["trials"][0]["further"] == {"watch_rmse": 2.5} and report["further"] == {"watch_rmse": "watch RMSE"}


def test_values_that_do_not_differ_have_no_importance(tmp_path):
    study = Study(small_plan(tmp_path), tmp_path, IDENTITY)
    for _ in range(4):
        study.tell(study.ask(), result(0.6), 1.0)
    assert importance(study) is None


@pytest.mark.slow
def test_importance_is_of_what_moves_the_objective(tmp_path, monkeypatch):
    monkeypatch.setattr(study_module, "STARTUP_TRIALS", 30)  # points all over the space
    study = Study(small_plan(tmp_path), tmp_path, IDENTITY)
    for number in range(20):
        if number in (0, 3, 4):  # each takes a forest of trees
            assert (importance(study) is None) == (number < 4)
        trial = study.ask()
        study.tell(trial, result(loss(trial.params)), 1.0)
    shares = importance(study)
    assert set(shares) == set(trial.params) and sum(shares.values()) == pytest.approx(1)
    # The variance of (log10 rate + 2)^2 is 0.09, and the two others have 0.003 together.
    assert shares["training.learning_rate"] > 0.8
