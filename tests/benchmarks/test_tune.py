"""The benchmark of a search against a grid: its arithmetic, and a small run."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import tune
from tests.e2e.small_run import call


def trial(steps: int, value: float | None) -> dict:
    return {"steps": steps, "value": value}


REPORT = {
    "objective": "validation_auc",
    "trials": [trial(100, 0.70), trial(20, None), trial(90, 0.75), trial(100, 0.72), trial(80, 0.76)],
}


def test_the_grid_has_48_points_that_the_study_s_ranges_span():
    points = tune.grid_points()
    assert len(points) == 48 and len({str(point) for point in points}) == 48
    assert {point["training.learning_rate"] for point in points} == {3e-4, 1e-3, 3e-3, 1e-2}


@pytest.mark.parametrize(("auc", "steps"), [(0.70, 100), (0.71, 210), (0.75, 210), (0.76, 390), (0.77, None)])
def test_the_steps_to_the_grids_best_count_those_of_stopped_trials(auc, steps):
    assert tune.reached(REPORT, auc) == steps


@pytest.mark.parametrize(("steps", "auc"), [(99, None), (100, 0.70), (209, 0.70), (210, 0.75), (1000, 0.76)])
def test_the_best_within_a_budget_is_of_trials_that_ended_in_it(steps, auc):
    assert tune.best_within(REPORT, steps) == auc


def test_a_study_that_never_reaches_the_grid_counts_as_the_longest():
    assert tune.median_share([0.1, None, 0.3]) == 0.3
    assert tune.median_share([None, 0.1, None]) is None


@pytest.mark.large(like="tests/pipeline/tune/test_tune.py::test_the_best_is_compared_with_the_default_on_test_rows")
@pytest.mark.slow
def test_a_small_run_counts_the_grids_steps_and_goes_on(tmp_path, monkeypatch):
    assert call("generate", "--rows", 600, "--output", tmp_path / "log.tsv")[0] == 0
    training = "training={batch_size: 128, epochs: 2, evaluations_per_epoch: 4, patience: 8, plateau: null}"
    monkeypatch.setattr(tune, "SETTINGS", ("model={name: lr}", training))
    monkeypatch.setattr(tune, "GRID", {"training.learning_rate": [1e-4, 1e-2], "model.l2": [0.0]})
    monkeypatch.setattr(tune, "SEARCH", "{training.learning_rate: {log: [1e-4, 1e-2]}}")
    folder = ("--folder", str(tmp_path / "work"), "--output", str(tmp_path / "tune.json"))
    arguments = ["--data", str(tmp_path / "log.tsv"), "--seeds", "1", "--trials", "3", *folder]
    result = CliRunner().invoke(tune.main, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads((tmp_path / "tune.json").read_text())
    # 420 training rows, 128 a step: 4 steps in each of 2 epochs, for each of 2 points.
    assert report["grid"]["steps"] == 16
    [study] = report["studies"]
    assert study["trials"] == 3 and study["steps"] <= 24
    points = [json.loads(file.read_text()) for file in (tmp_path / "work" / "grid").glob("*.json")]
    assert report["grid"]["auc"] == max(point["auc"] for point in points) and len(points) == 2
    again = CliRunner().invoke(tune.main, arguments)
    assert again.exit_code == 0 and json.loads((tmp_path / "tune.json").read_text())["grid"] == report["grid"]
