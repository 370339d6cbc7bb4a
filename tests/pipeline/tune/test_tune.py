"""`ctrpipe tune`, from a raw log to a configuration that `ctrpipe run` takes."""

import json
import pathlib
import signal
import subprocess
import time

import numpy as np
import pytest
import sklearn.metrics
import yaml

import ctrpipe
from ctrpipe.pipeline.evaluation.scored_rows import read_scored
from ctrpipe.pipeline.tune import latency, run
from ctrpipe.pipeline.tune.trial import train_trial
from tests.e2e.small_run import call, one_line, start
from tests.pipeline.tune.small_study import CONFIG, trials_of, write_config
from tests.warm_processes import start_warm

TRIALS = 4


@pytest.fixture(scope="module")
def log(tmp_path_factory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("log") / "log.tsv"
    assert call("generate", "--rows", 1000, "--output", path)[0] == 0
    return path


def tune(folder: pathlib.Path, log: pathlib.Path, *options, seeds: int = 0) -> tuple[int, str]:
    data = ["--data", log, "--output", folder / "out"]
    return call("tune", write_config(folder), *data, "--seeds", seeds, *(options or ("--trials", TRIALS)))


@pytest.fixture(scope="module")
def done(tmp_path_factory, log) -> pathlib.Path:
    """The folder of a finished study."""
    folder = tmp_path_factory.mktemp("tune")
    code, output = tune(folder, log, seeds=2)
    assert code == 0 and f"the best of {TRIALS} trials by validation log loss" in output, output
    (folder / "printed.txt").write_text(output)
    return folder


@pytest.mark.large(like="tests/pipeline/tune/test_tune.py::test_the_best_is_compared_with_the_default_on_test_rows")
@pytest.mark.slow
def test_the_best_configuration_runs_and_trains_what_the_trial_trained(done, log, tmp_path):
    report = json.loads((done / "out" / "tune.json").read_text())
    complete = [trial for trial in report["trials"] if trial["state"] == "complete"]
    best = min(complete, key=lambda trial: trial["log_loss"])
    assert report["best"] == best and best["value"] == best["log_loss"]
    written = yaml.safe_load((done / "out" / "best.yaml").read_text())
    assert written["training"]["learning_rate"] == best["settings"]["training.learning_rate"]
    assert written["model"]["hidden_units"] == best["settings"]["model.hidden_units"] and "search" not in written
    assert written["training"]["refit"] is True  # as the configuration that was tuned
    # Without the refit, a run's best evaluation is the trial's.
    options = ("--data", log, "--output", tmp_path / "run", "--set", "training.refit=false")
    code, output = call("run", done / "out" / "best.yaml", *options)
    assert code in (0, 1), output
    history = json.loads((tmp_path / "run" / "report_data" / "history.json").read_text())
    assert history["evaluations"][history["best"]]["validation_log_loss"] == pytest.approx(best["log_loss"], rel=1e-6)


@pytest.mark.slow
def test_the_best_is_compared_with_the_default_on_test_rows(done):
    report, printed = json.loads((done / "out" / "tune.json").read_text()), (done / "printed.txt").read_text()
    confirmation = report["confirmation"]
    assert confirmation["trained"] == confirmation["wanted"] == 4
    compared = confirmation["comparison"]
    assert compared["models"] == ["default", "best"] and compared["rows"] == 200
    assert compared["trainings"] == {"default": 2, "best": 2}
    # The means over the seeds, from the predictions.
    scored = {
        side: [read_scored(path) for path in sorted((done / "out" / "confirmation").glob(f"{side}-*.parquet"))]
        for side in compared["models"]
    }
    values = {
        side: [sklearn.metrics.log_loss(each.labels["ctr"], each.probabilities["ctr"]) for each in trainings]
        for side, trainings in scored.items()
    }
    [whole] = [part for part in compared["slices"] if part["slice"] == "ALL"]
    for side, losses in values.items():
        assert whole["metrics"][side]["log_loss"] == pytest.approx(np.mean(losses), abs=1e-6) and np.ptp(losses) > 0
        assert whole["metrics"][side]["calibration"] > 0
    difference = whole["differences"]["best"]["rig"]
    low, high = difference["interval"]
    assert low < difference["difference"] < high and difference["seeds_error"] > 0
    better = low > 0
    assert confirmation["proposed"] == ("best" if better else "default")
    assert confirmation["text"] in printed and f"Proposed: the {confirmation['proposed']} configuration" in printed
    proposed = yaml.safe_load((done / "out" / "proposed.yaml").read_text())
    rate = report["best"]["settings"]["training.learning_rate"] if better else CONFIG["training"]["learning_rate"]
    assert proposed["training"]["learning_rate"] == rate and proposed["training"]["refit"] is True
    assert confirmation["text"].partition(" (")[0] in (done / "out" / "tune.html").read_text()


@pytest.mark.slow
def test_steps_are_those_that_were_done(done):
    # 1,000 rows by order: 20% test, a tenth of them for validation; 128 a step, 8 evaluations an epoch at most.
    steps = 6
    trials = trials_of(done / "out")
    assert "complete" in {trial["state"] for trial in trials}
    for trial in trials:
        assert trial["steps"] == steps if trial["state"] == "complete" else 0 < trial["steps"] <= steps
        assert trial["curve"] and trial["curve"][-1][0] <= 8


@pytest.mark.slow
def test_no_test_row_is_looked_at(done, log, tmp_path):
    lines = log.read_text().splitlines()
    other = []
    for line in lines[800:]:  # the last fifth is for testing: other labels, and other values of all features
        label, *values = line.split("\t")
        other.append("\t".join([str(1 - int(label)), *("7" if value else value for value in values[:13]), *["x"] * 26]))
    assert len(other) == 200
    changed = tmp_path / "changed.tsv"
    changed.write_text("\n".join([*lines[:800], *other]) + "\n")
    code, output = tune(tmp_path, changed)
    assert code == 0, output
    assert trials_of(tmp_path / "out") == trials_of(done / "out")


@pytest.mark.large(like="tests/pipeline/tune/test_tune.py::test_ctrl_c_is_one_line_and_the_study_goes_on")
@pytest.mark.slow
def test_a_study_goes_on_after_a_kill_as_if_there_had_been_none(done, log, tmp_path):
    command = [
        "tune",
        write_config(tmp_path),
        "--data",
        log,
        "--output",
        tmp_path / "out",
        "--trials",
        TRIALS,
        "--seeds",
        0,
    ]
    process = start_warm(*command, stderr=subprocess.PIPE)
    for line in process.stderr:
        if "] Trial 1, " in line:
            break
    time.sleep(0.3)  # into the third trial
    process.kill()
    process.communicate()
    assert not (tmp_path / "out" / "tune.json").exists()
    code, output = call(*command)
    assert code == 0 and "2 trials are already done" in output, output
    assert "Transform: from cache" in output
    assert [trial["settings"] for trial in trials_of(tmp_path / "out")] == [
        trial["settings"] for trial in trials_of(done / "out")
    ]
    for again, once in zip(trials_of(tmp_path / "out"), trials_of(done / "out"), strict=True):
        assert (again["state"], again["steps"]) == (once["state"], once["steps"])
        assert again["log_loss"] == (once["log_loss"] and pytest.approx(once["log_loss"], rel=1e-6))


@pytest.mark.slow
def test_ctrl_c_is_one_line_and_the_study_goes_on(log, tmp_path, monkeypatch):
    calls = []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train_trial(*arguments)

    monkeypatch.setattr("ctrpipe.pipeline.tune.trial.train_trial", interrupted)
    code, output = tune(tmp_path, log, "--trials", 2)
    assert code == 130 and output.endswith("interrupted; repeat the command to continue from here\n")
    code, output = tune(tmp_path, log, "--trials", 2)
    assert code == 0 and "1 trials are already done, 1 interrupted trials resume" in output
    assert calls[1][0] == calls[2][0]  # the interrupted point


@pytest.mark.large(like="tests/pipeline/tune/test_tune.py::test_ctrl_c_is_one_line_and_the_study_goes_on")
@pytest.mark.slow
def test_workers_share_a_study_and_end_with_ctrl_c(log, tmp_path):
    command = [
        "tune",
        write_config(tmp_path),
        "--data",
        log,
        "--output",
        tmp_path / "out",
        "--workers",
        2,
        "--seeds",
        0,
    ]
    process = start(*command, "--trials", 50, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for line in process.stderr:
        if "] Trial 1, " in line:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "interrupted; repeat the command to continue" in errors
    assert "Traceback" not in errors
    code, output = call(*command, "--trials", 5)
    assert code == 0, output
    trials = trials_of(tmp_path / "out")
    assert len(trials) >= 5 and len({str(trial["settings"]) for trial in trials}) == len(trials)


@pytest.mark.slow
def test_a_model_that_is_too_slow_is_not_trained(log, tmp_path, monkeypatch):
    slow = {4: 9.0, 2: 1.0}
    monkeypatch.setattr(latency, "serving_p99", lambda config, log, folder: slow[config.model.embedding_dim])
    code, output = tune(tmp_path, log, "--trials", 4, "--p99-ms", 5)
    assert code == 0 and "not trained: p99 of 9.00 ms is above 5 ms" in output, output
    trials = trials_of(tmp_path / "out")
    for trial in trials:
        refused = trial["settings"]["model.embedding_dim"] == 4
        assert (trial["state"] == "refused") == refused and (trial["steps"] == 0) == refused
        assert trial["p99_ms"] == slow[trial["settings"]["model.embedding_dim"]]
    assert yaml.safe_load((tmp_path / "out" / "best.yaml").read_text())["model"]["embedding_dim"] == 2


@pytest.mark.slow
def test_serving_is_measured_on_an_export(log, tmp_path):
    code, output = tune(tmp_path, log, "--trials", 1, "--p99-ms", 1000)
    assert code == 0, output
    [trial] = trials_of(tmp_path / "out")
    assert 0 < trial["p99_ms"] < 1000 and trial["state"] == "complete"
    assert not list((tmp_path / "out").glob("work*"))


@pytest.mark.slow
def test_a_study_of_another_log_or_code_is_one_line_and_nothing_is_lost(done, log, tmp_path, monkeypatch):
    before = {path: path.read_bytes() for path in (done / "out").iterdir() if path.is_file()}
    other = tmp_path / "other.tsv"
    other.write_text("".join(log.read_text().splitlines(keepends=True)[:-1]))
    one_line(*tune(done, other), "holds a study of another log; choose another --output")
    one_line(*tune(done, log, "--trials", TRIALS, "--objective", "auc"), "of another configuration, objective;")
    monkeypatch.setattr(run, "stage_version", lambda *modules: "changed")
    one_line(*tune(done, log), "holds a study of another code;")
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--budget", "soon"), "--budget soon: expected a time"),
        (("--trials", "x"), "--trials x"),
        (("--trials", 2, "--p99-ms", "fast"), "--p99-ms fast: expected milliseconds"),
        ((), "give a budget"),
        (("--trials", 2, "--set", "search={}"), "the search space is empty"),
        (("--trials", 2, "--set", "search={model.depth: [1]}"), "mlp has no hyperparameter 'depth'"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, options, message):
    one_line(*call("tune", write_config(tmp_path), "--data", "log.tsv", *options), message)
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_combinations_that_cannot_be_are_refused_and_not_trained(log, tmp_path):
    model = {"name": "attention_net", "embedding_dim": 4, "heads": 2, "layers": 1, "top_k": 2, "hidden_units": [4]}
    path = write_config(tmp_path, model=model, search={"model.embedding_dim": [4], "model.heads": [3]})
    code, output = call("tune", path, "--data", log, "--output", tmp_path / "out", "--trials", 3)
    one_line(code, output, "1 were refused, the last as")


@pytest.mark.slow
def test_from_python_it_is_the_same_study(done, log):
    tuned = ctrpipe.tune(write_config(done), log, done / "out", trials=TRIALS, seeds=2)
    assert tuned.report["trials"] == json.loads((done / "out" / "tune.json").read_text())["trials"]
    assert tuned.best.exists() and tuned.page.exists()
    assert (
        yaml.safe_load(tuned.best.read_text())["training"]["learning_rate"]
        == (tuned.settings["training.learning_rate"])
    )
    assert "validation_log_loss" in repr(tuned)
