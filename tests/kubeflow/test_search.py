"""Sweeps and studies on Kubeflow: every task of the compiled files, against `ctrpipe sweep` and `ctrpipe tune`."""

import json
import os
import shutil

import pytest
import yaml
from click.testing import CliRunner

from ctrpipe.common.stores import delete, objects_below, read_bytes
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.pipeline.kubeflow import step
from ctrpipe.pipeline.kubeflow.shared_folder import BEGIN
from ctrpipe.pipeline.run.inputs import RunInputs
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.transforms.log.files import FileState
from tests.e2e.small_run import SHORT_CONFIG, call, one_line
from tests.kubeflow.launcher import Launcher

ROWS = 400
VARYING = ("seconds", "train_samples_per_second", "predictions", "kept_model")  # of a training's result, in two folders


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    folder = tmp_path_factory.mktemp("volume")
    kubeflow = {"image": "registry.example/ctrpipe:1", "volumes": {"ctr-data": str(folder)}}
    config = {**SHORT_CONFIG, "model": {"name": "lr"}, "kubeflow": kubeflow}
    config["search"] = {"training.learning_rate": {"log": [1e-4, 1e-1]}}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert call("generate", "--rows", ROWS, "--output", folder / "log.tsv")[0] == 0
    return folder


GRID = ("--grid", "training.learning_rate=0.01,0.1", "--seeds", 1)


@pytest.fixture(scope="module")
def sweep_here(volume, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweep-here")
    code, said = call("sweep", volume / "config.yaml", "--data", volume / "log.tsv", "--output", folder, *GRID)
    assert code == 0, said
    return folder


@pytest.fixture(scope="module")
def study_here(volume, tmp_path_factory):
    folder = tmp_path_factory.mktemp("study-here")
    options = ("--data", volume / "log.tsv", "--trials", 2, "--seeds", 0, "--output", folder)
    code, said = call("tune", volume / "config.yaml", *options)
    assert code == 0, said
    return folder


class InOneProcess(Launcher):
    """Runs all tasks in this process, which has imported what they need; test_run.py has a process for each."""

    def execute(self, name, command, container):
        assert command[:3] == ["python", "-m", step.__name__]
        ended = CliRunner().invoke(step.main, command[3:])
        return ended.exit_code, f"{ended.output}{ended.exception or ''}"


def compile_with(volume, *options):
    return call("compile", volume / "config.yaml", "--output", volume / "pipeline.yaml", *options)


class InPods(InOneProcess):
    """Runs each task on an empty disk."""

    def execute(self, name, command, container):
        shutil.rmtree(os.environ["CTRPIPE_CACHE"], ignore_errors=True)
        return super().execute(name, command, container)


def launch(volume, bucket, output, kind=InOneProcess):
    parameters = {"data": [str(volume / "log.tsv")], "output": str(output)}
    launcher = kind(volume / "pipeline.yaml", bucket, parameters)
    launcher.run(processes=1)
    assert not launcher.failed, launcher.failed
    assert set(launcher.finished) == set(launcher.tasks)
    return launcher


def shown(launcher, task, output):
    [artifact] = launcher.finished[task]["artifacts"][output]["artifacts"]
    return artifact


def said_by_the_training(launcher):
    return (launcher.bucket / "for-loop-1" / "0" / "trainpoint" / "executor-logs-0").read_text()


def read(file):
    return json.loads(file.read_text())


def comparable(found):
    """A summary or report without times and places."""
    if isinstance(found, dict):
        return {key: comparable(value) for key, value in found.items() if "second" not in key and key not in VARYING}
    return [comparable(each) for each in found] if isinstance(found, list) else found


def test_a_pod_reads_the_transformed_log_that_the_first_step_has_written(tmp_path):
    states = {"/data/log.tsv": FileState(7, "123")}
    inputs = RunInputs(("/data/log.tsv",), "hash", states, tmp_path, "", checkpoints={"/data/encoder": "another"})
    fields = FeatureMap(fields=(), dense=("I1",), tasks=("click", "buy"))
    splits = ([f"/data/Split-{split}/*"] for split in ("train", "validation", "test"))
    log = TransformedLog(*splits, fields, tmp_path / "payload", inputs, tmp_path / "graph")
    assert TransformedLog.from_json(log.to_json()) == log


@pytest.mark.slow
def test_a_sweep_with_a_pod_for_each_training_has_the_results_of_one_here(volume, sweep_here, tmp_path):
    code, output = compile_with(volume, "--sweep", *GRID, "--parallel", 2)
    assert code == 0 and "PlanSweep, TrainPoint, SummariseSweep" in output, output
    launcher = launch(volume, tmp_path / "bucket", volume / "cluster")
    assert sum("trainpoint" in name for name in launcher.executed) == 2
    cluster, here = (read(folder / "sweep.json") for folder in (volume / "cluster", sweep_here))
    assert comparable(cluster) == comparable(here) and len(here["points"]) == 2
    assert not (volume / "cluster" / "work").exists()
    table = (launcher.bucket / "summarisesweep" / "table").read_text()
    assert f"| **`{here['best']}`** |" in table and table.count("\n| ") == 3
    metrics = shown(launcher, "summarisesweep", "metrics")
    assert metrics["type"]["schemaTitle"] == "system.Metrics" and metrics["metadata"]["trainings"] == 2
    # The same pipeline again trains nothing. One training whose result is gone is done again: see the sweep in a store.
    results = {path: path.read_text() for path in (volume / "cluster" / "results").glob("*.json")}
    launcher = launch(volume, tmp_path / "again", volume / "cluster")
    assert sum("trainpoint" in name for name in launcher.executed) == 1
    assert "All training runs are done already" in said_by_the_training(launcher)
    assert len(results) == 2 and all(path.read_text() == before for path, before in results.items())


@pytest.mark.slow
def test_a_study_with_a_pod_for_each_trial_has_the_trials_of_one_here(volume, study_here, tmp_path):
    code, output = compile_with(volume, "--tune", 2, "--parallel", 1, "--seeds", 0)
    assert code == 0 and "PlanStudy, ProposeTrials, TrainTrial, ConfirmStudy" in output, output
    launcher = launch(volume, tmp_path / "bucket", volume / "study")
    cluster, here = (read(folder / "tune.json") for folder in (volume / "study", study_here))
    assert comparable(cluster) == comparable(here) and len(here["trials"]) == 2
    assert (volume / "study" / "best.yaml").read_text() == (study_here / "best.yaml").read_text()
    assert not (volume / "study" / "trials").exists()
    page = shown(launcher, "confirmstudy", "page")
    assert (
        page["type"]["schemaTitle"] == "system.HTML"
        and "<!doctype html>" in (launcher.bucket / "confirmstudy" / "page").read_text().lower()
    )


@pytest.mark.large(
    like="tests/kubeflow/test_search.py::test_a_study_with_a_pod_for_each_trial_has_the_trials_of_one_here"
)
@pytest.mark.slow
def test_more_trials_two_at_a_time_leave_those_that_are_there(volume, study_here, tmp_path):
    here = read(study_here / "tune.json")
    assert compile_with(volume, "--tune", 2, "--parallel", 1, "--seeds", 0)[0] == 0
    launch(volume, tmp_path / "bucket", volume / "longer")
    assert compile_with(volume, "--tune", 4, "--parallel", 2, "--seeds", 0)[0] == 0
    launcher = launch(volume, tmp_path / "more", volume / "longer")
    more = read(volume / "longer" / "tune.json")["trials"]
    assert comparable(more[:2]) == comparable(here["trials"]) and len(more) == 4
    assert len({trial["settings"]["training.learning_rate"] for trial in more}) == 4
    logs = [(launcher.bucket / name / "executor-logs-0").read_text() for name in launcher.executed if "train" in name]
    assert sum("No trial is left to train" in log for log in logs) == 1


@pytest.mark.large(
    like="tests/kubeflow/test_search.py::test_a_sweep_with_a_pod_for_each_training_has_the_results_of_one_here"
)
@pytest.mark.slow
def test_in_a_store_a_sweep_has_the_results_of_one_here(volume, sweep_here, tmp_path, s3, monkeypatch):
    """Each task begins with an empty disk, as a pod does."""
    monkeypatch.setenv("CTRPIPE_CACHE", str(tmp_path / "disk"))
    stored = ("--set", f"kubeflow.output={s3.url}/runs/mine")
    assert compile_with(volume, "--sweep", *GRID, *stored)[0] == 0
    spec = next(yaml.safe_load_all((volume / "pipeline.yaml").read_text()))
    url = spec["root"]["inputDefinitions"]["parameters"]["output"]["defaultValue"]
    assert url == f"{s3.url}/runs/config"
    launch(volume, tmp_path / "bucket", url, InPods)
    assert comparable(json.loads(read_bytes(f"{url}/sweep.json"))) == comparable(read(sweep_here / "sweep.json"))
    names = {found.removeprefix(f"{url}/") for found, _ in objects_below(url)}
    assert {"sweep.html", "sweep.csv", BEGIN} <= names and not [n for n in names if n.startswith(("work/", ".lock"))]
    # A training whose result is gone is done again, the others are not.
    [gone, *_] = sorted(name for name in names if name.startswith("results/") and name.endswith(".json"))
    delete(f"{url}/{gone}")
    launcher = launch(volume, tmp_path / "again", url, InPods)
    assert sum("trainpoint" in name for name in launcher.executed) == 1
    assert "All training runs are done already" not in said_by_the_training(launcher)
    assert comparable(json.loads(read_bytes(f"{url}/{gone}"))) == comparable(read(sweep_here / gone))


@pytest.mark.large(
    like="tests/kubeflow/test_search.py::test_a_sweep_with_a_pod_for_each_training_has_the_results_of_one_here"
)
@pytest.mark.slow
def test_in_a_store_a_study_has_the_results_of_one_here(volume, study_here, tmp_path, s3, monkeypatch):
    monkeypatch.setenv("CTRPIPE_CACHE", str(tmp_path / "disk"))
    stored = ("--set", f"kubeflow.output={s3.url}/runs/mine")
    assert compile_with(volume, "--tune", 2, "--parallel", 1, "--seeds", 0, *stored)[0] == 0
    launch(volume, tmp_path / "study", f"{s3.url}/study", InPods)
    found = json.loads(read_bytes(f"{s3.url}/study/tune.json"))
    assert comparable(found) == comparable(read(study_here / "tune.json"))
    assert not [found for found, _ in objects_below(f"{s3.url}/study") if "/trials/" in found]


@pytest.mark.slow
def test_options_that_do_not_fit_are_one_line(volume):
    one_line(*compile_with(volume, "--sweep", "--tune", 3), "give only one of --sweep, --tune and --hosts")
    one_line(*compile_with(volume, "--grid", "model.name=lr,fm"), "--grid: only with --sweep; leave it out, or give")
    one_line(*compile_with(volume, "--sweep"), "give --grid KEY=VALUE,VALUE, or a sweep file")
    one_line(*compile_with(volume, "--seeds", 2), "--seeds: only with --sweep or --tune")
    one_line(*compile_with(volume, "--tune", 3, "--seeds", 1), "--seeds 1: one training run says nothing")
    one_line(*compile_with(volume, "--tune", 3, "--format", "json"), "--format json: a sweep or study needs a volume")
    one_line(*compile_with(volume, "--tune", 501, "--parallel", 5), "101 rounds, more than the 100 that Kubernetes can")
    points = [{"name": f"{n}-{'x' * 2600}", "set": {"model.dropout": n / 40}} for n in range(40)]
    many = {"name": "many", "config": "config.yaml", "points": points}
    (volume / "many.yaml").write_text(yaml.safe_dump(many))
    code, output = call("compile", volume / "many.yaml", "--output", volume / "p.yaml", "--sweep")
    one_line(code, output, "at most 100,000 go to a step; compile fewer points, or a grid")
    wrong = ("--set", "kubeflow.resources={Trainr: {cpu: 1}}")
    for search in (("--tune", 3), ("--sweep", *GRID)):
        one_line(*compile_with(volume, *search, *wrong), "kubeflow.resources: Trainr is not a step; the steps are Prep")


@pytest.mark.slow
def test_the_resources_of_a_run_are_those_of_the_steps_that_do_the_same_work(volume):
    resources = {
        "default": {"memory": "1Gi"},
        "LogTransform": {"memory": "2Gi", "timeout": 60},
        "Trainer": {"memory": "3Gi", "timeout": 70, "accelerator": "nvidia.com/gpu"},
        "ConfirmStudy": {"memory": "4Gi", "timeout": 80},
    }

    def steps(*options):
        code, output = compile_with(volume, *options, "--set", f"kubeflow.resources={json.dumps(resources)}")
        assert code == 0, output
        spec, platform = yaml.safe_load_all((volume / "pipeline.yaml").read_text())
        timeouts = platform["platforms"]["kubernetes"]["deploymentSpec"]["executors"]
        found = {}
        for name, executor in spec["deploymentSpec"]["executors"].items():
            given = executor["container"]["resources"]
            timeout = timeouts[name].get("activeDeadlineSeconds")
            found[name.removeprefix("exec-")] = (given["resourceMemoryLimit"], "accelerator" in given, timeout)
        return found

    # A timeout of one step is none for a step that does the work of several.
    plan, training, other = ("2Gi", False, None), ("3Gi", True, "70"), ("1Gi", False, None)
    assert steps("--sweep", *GRID) == {"plansweep": plan, "trainpoint": training, "summarisesweep": other}
    confirm = ("4Gi", False, "80")
    study = steps("--tune", 2, "--parallel", 2)
    assert study == {"planstudy": plan, "proposetrials": other, "traintrial": training, "confirmstudy": confirm}
    del resources["ConfirmStudy"]
    assert steps("--tune", 2, "--parallel", 2)["confirmstudy"] == ("3Gi", True, None)
    resources["TrainTrial"] = {"memory": "5Gi"}
    assert steps("--tune", 2, "--parallel", 2)["traintrial"] == ("5Gi", False, None)
    assert steps()["trainer"] == training  # of a run, the same configuration
