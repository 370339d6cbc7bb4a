"""The compiled pipeline, run task by task, against `ctrpipe run` on the same configuration, log and seed."""

import json
import pathlib
import shutil
import subprocess

import numpy as np
import pyarrow.parquet
import pytest
import sklearn.metrics
import yaml

from benchmarks.harness.store_servers import KEYS
from ctrpipe.common import stores
from ctrpipe.common.store_names import CACHE
from ctrpipe.serving.stored import newest_stored
from tests.e2e.small_run import SHORT_CONFIG, call
from tests.kubeflow.launcher import Launcher
from tests.warm_python import python

pytestmark = pytest.mark.slow

ROWS = 600


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    folder = tmp_path_factory.mktemp("volume")
    kubeflow = {"image": "registry.example/ctrpipe:1", "volumes": {"ctr-data": str(folder)}}
    config = {**SHORT_CONFIG, "seed": 3, "evaluation": {"baseline": {"name": "lr"}}, "kubeflow": kubeflow}
    config["serving"] = {"bulk_inferrer": True}  # the one step that is a Beam job of TFX
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert call("generate", "--rows", ROWS, "--output", folder / "log.tsv")[0] == 0
    code, output = call("compile", folder / "config.yaml", "--output", folder / "pipeline.yaml")
    assert code == 0 and "Prepare, " in output, output
    return folder


@pytest.fixture(scope="module")
def launched(volume, tmp_path_factory):
    parameters = {"data": [str(volume / "log.tsv")], "output": str(volume / "cluster"), "settings": ["seed=3"]}
    launcher = Launcher(volume / "pipeline.yaml", tmp_path_factory.mktemp("bucket"), parameters, is_warm=True)
    launcher.run()
    assert not launcher.failed, launcher.failed
    shutil.copytree(volume / "cluster", volume / "first")  # a later test runs the next day in this folder
    return launcher


def run_here(volume, *arguments):
    """A run in a process like the tasks: a test process has one thread, which rounds differently on some CPUs."""
    command = [*python("tensorflow"), "-m", "ctrpipe", "run", volume / "config.yaml", *arguments]
    subprocess.run([str(word) for word in command], check=True)


def test_every_task_runs_and_the_metrics_are_those_of_a_run_here(volume, launched):
    assert set(launched.finished) == set(launched.tasks)
    run_here(volume, "--data", volume / "log.tsv", "--output", volume / "here")
    here = json.loads((volume / "here" / "metrics.json").read_text())
    cluster = json.loads((volume / "cluster" / "metrics.json").read_text())
    versions = [found.pop("model_version") for found in (here, cluster)]
    assert all(versions) and here["blessed"] and here["baseline"]["name"] == "lr"
    assert here == cluster
    modes = {oct(path.stat().st_mode & 0o777) for path in (volume / "cluster").rglob("*") if path.is_file()}
    assert modes == {"0o644"}
    assert {oct(path.stat().st_mode & 0o777) for path in (volume / "cluster").rglob("*/")} == {"0o755"}
    logs = [launched.bucket / name / "executor-logs-0" for name in launched.executed]
    assert all(log.is_file() for log in logs)
    assert "validation AUC" in (launched.bucket / "trainer" / "executor-logs-0").read_text()
    [shown] = launched.finished["report"]["artifacts"]["metrics"]["artifacts"]
    assert shown["type"]["schemaTitle"] == "system.Metrics" and shown["metadata"]["auc"] == here["auc"]
    [page] = launched.finished["report"]["artifacts"]["page"]["artifacts"]
    assert "<!doctype html>" in pathlib.Path(page["uri"]).read_text()


def shown(launched, task, output):
    """An output artifact, and what Kubeflow's pages have of it beyond the form in which steps hand it on."""
    [artifact] = launched.finished[task]["artifacts"][output]["artifacts"]
    return artifact, {name: value for name, value in artifact["metadata"].items() if name != "tfx"}


def test_kubeflow_draws_the_curve_and_the_matrix_of_the_test_rows(volume, launched):
    artifact, drawn = shown(launched, "report", "classification")
    assert artifact["type"]["schemaTitle"] == "system.ClassificationMetrics"
    table = pyarrow.parquet.read_table(volume / "cluster" / "report_data" / "predictions.parquet").to_pydict()
    labels, probabilities = np.array(table["label"]), np.array(table["probability"])
    assert drawn["threshold"] == pytest.approx(labels.mean())
    expected = sklearn.metrics.confusion_matrix(labels, probabilities >= labels.mean())
    assert [row["row"] for row in drawn["confusionMatrix"]["rows"]] == expected.tolist()
    assert [spec["displayName"] for spec in drawn["confusionMatrix"]["annotationSpecs"]] == ["no click", "click"]
    curve = {name: [point[name] for point in drawn["confidenceMetrics"]] for name in drawn["confidenceMetrics"][0]}
    assert set(curve) == {"confidenceThreshold", "recall", "falsePositiveRate"}
    area = sklearn.metrics.auc(curve["falsePositiveRate"], curve["recall"])
    assert area == pytest.approx(sklearn.metrics.roc_auc_score(labels, probabilities), abs=0.01)
    for point in drawn["confidenceMetrics"][1:]:
        above = probabilities >= point["confidenceThreshold"]
        assert point["recall"] == pytest.approx(above[labels == 1].mean())
        assert point["falsePositiveRate"] == pytest.approx(above[labels == 0].mean())
    assert json.loads(pathlib.Path(artifact["uri"]).read_text()) == drawn


def test_kubeflow_shows_the_rows_of_data_sets_the_pushed_version_and_tensorboard(volume, launched):
    artifact, rows = shown(launched, "logexamplegen", "examples")
    counts = json.loads(pathlib.Path(artifact["uri"], "counts.json").read_text())["rows"]
    assert rows == {f"rows_{split}": count for split, count in counts.items()} and sum(rows.values()) == ROWS
    assert shown(launched, "logtransform", "transformed_examples")[1] == rows
    pushed, told = shown(launched, "atomicpusher", "pushed_model")
    [version] = (volume / "cluster" / "models" / "ctr").iterdir()
    assert told == {"version": version.name, "pushed_to": str(version)}
    assert pushed["type"]["schemaTitle"] == "system.Model"
    folder, _ = shown(launched, "trainer", "tensorboard")
    viewers = {task: shown(launched, task, "mlpipeline_ui_metadata")[0] for task in ("trainer", "trainer-baseline")}
    links = {task: json.loads(pathlib.Path(link["uri"]).read_text())["outputs"] for task, link in viewers.items()}
    # The baseline is trained to its optimum, and has no evaluations to draw.
    assert links == {"trainer": [{"type": "tensorboard", "source": folder["uri"]}], "trainer-baseline": []}
    [log] = pathlib.Path(folder["uri"]).rglob("*tfevents*")
    assert b"validation_auc" in log.read_bytes()


def test_the_pushed_model_answers(volume, launched):
    from ctrpipe.serving.loader import Servable

    answers = []
    for output in ("cluster", "here"):
        [version] = (volume / output / "models" / "ctr").iterdir()
        servable = Servable(version)
        raw = {"I2": np.array([1.0, 7.0], np.float32), "C9": np.array(["a", ""], object)}
        answers.append(servable.run("serving_raw", raw)["ctr"])
        servable.close()
    assert answers[0].shape == (2,) and np.isfinite(answers[0]).all()
    np.testing.assert_allclose(*answers, atol=1e-6)


@pytest.mark.large(like="tests/kubeflow/test_run.py::test_every_task_runs_and_the_metrics_are_those_of_a_run_here")
def test_a_run_in_another_folder_finds_the_work_of_an_earlier_one(volume, launched, tmp_path):
    """It pushes and reports into its own folder, with the malformed rows of the log that it has not read."""
    parameters = {"data": [str(volume / "log.tsv")], "output": str(volume / "another"), "settings": ["seed=3"]}
    launcher = Launcher(volume / "pipeline.yaml", tmp_path, parameters, launched.cache, is_warm=True)
    launcher.run()
    assert not launcher.failed, launcher.failed
    assert launcher.executed == ["prepare", "atomicpusher", "report", "verdict"]
    metrics = [json.loads((volume / name / "metrics.json").read_text()) for name in ("cluster", "another")]
    assert all(found.pop("model_version") for found in metrics) and metrics[0] == metrics[1]
    letters = [(volume / name / "dead_letter" / "rejects.jsonl").read_bytes() for name in ("cluster", "another")]
    assert letters[0] == letters[1]
    assert [path.name for path in (volume / "another" / "models" / "ctr").iterdir()]


@pytest.mark.large(like="tests/kubeflow/test_run.py::test_every_task_runs_and_the_metrics_are_those_of_a_run_here")
def test_in_groups_each_step_has_the_same_inputs_as_without_and_finds_their_outputs(volume, launched, tmp_path):
    code, output = call(
        "compile", volume / "config.yaml", "--output", tmp_path / "groups.yaml", "--set", "kubeflow.groups=true"
    )
    assert code == 0, output
    parameters = {"data": [str(volume / "log.tsv")], "output": str(volume / "groups"), "settings": ["seed=3"]}
    launcher = Launcher(tmp_path / "groups.yaml", tmp_path / "bucket", parameters, launched.cache, is_warm=True)
    launcher.run()
    assert not launcher.failed, launcher.failed
    assert set(launcher.finished) == set(launched.finished) | {"data", "models", "gates", "push-and-report"}
    assert launcher.executed == ["prepare", "atomicpusher", "report", "verdict"]
    metrics = [json.loads((volume / name / "metrics.json").read_text()) for name in ("first", "groups")]
    assert all(found.pop("model_version") for found in metrics) and metrics[0] == metrics[1]


@pytest.mark.large(like="tests/kubeflow/test_run.py::test_every_task_runs_and_the_metrics_are_those_of_a_run_here")
def test_the_next_day_begins_with_the_version_that_the_cluster_pushed(volume, launched, tmp_path_factory):
    """As `ctrpipe run --warm-start` does with that version; no step sees the artifacts of the day before."""
    [first] = (volume / "cluster" / "models" / "ctr").iterdir()
    assert call("generate", "--rows", ROWS, "--seed", 2, "--output", volume / "next.tsv")[0] == 0
    settings = ["seed=3", "training.epochs=1", "training.warm_start={parent: latest}"]
    parameters = {"data": [str(volume / "next.tsv")], "output": str(volume / "cluster"), "settings": settings}
    launcher = Launcher(volume / "pipeline.yaml", tmp_path_factory.mktemp("next"), parameters, is_warm=True)
    elsewhere = launched.bucket.rename(launched.bucket.with_name("elsewhere"))
    try:
        launcher.run()
        assert not launcher.failed, launcher.failed
        options = ("--set", "training.epochs=1", "--warm-start", first)
        run_here(volume, "--data", volume / "next.tsv", "--output", volume / "next", *options)
    finally:
        elsewhere.rename(launched.bucket)
    metrics, parents = [], []
    for name in ("cluster", "next"):
        metrics.append(json.loads((volume / name / "metrics.json").read_text()))
        metrics[-1].pop("model_version")
        lineage = json.loads((volume / name / "report_data" / "lineage.json").read_text())
        parents.append(lineage["parent"])
    assert metrics[0] == metrics[1]
    assert parents[0] == parents[1] and parents[0]["model"] == str(first) and parents[0]["weights"]


@pytest.mark.large(like="tests/kubeflow/test_run.py::test_every_task_runs_and_the_metrics_are_those_of_a_run_here")
def test_log_report_and_models_may_be_in_a_store(volume, launched, s3, tmp_path, monkeypatch):
    """Each step has a disk of its own, and the metrics are those of the same run on a volume."""
    url = f"{s3.url}/runs/cluster"
    stores.write_file(f"{s3.url}/log.tsv", volume / "log.tsv")
    parameters = {"data": [f"{s3.url}/log.tsv"], "output": url, "settings": ["seed=3"]}
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))

    class OwnDisks(Launcher):
        def _run(self, name):
            shutil.rmtree(tmp_path / "cache", ignore_errors=True)
            super()._run(name)

    launcher = OwnDisks(volume / "pipeline.yaml", tmp_path / "bucket", parameters)
    launcher.run(processes=1)
    assert not launcher.failed, launcher.failed
    cluster, here = (
        json.loads(stores.read_bytes(f"{url}/metrics.json")),
        json.loads((volume / "first" / "metrics.json").read_text()),
    )
    assert newest_stored(f"{url}/models/ctr") == int(cluster.pop("model_version")) and here.pop("model_version")
    assert cluster == here
    assert stores.is_file(f"{url}/report.html")
    kept = [path for path in (tmp_path / "bucket").rglob("*") if path.is_file()]
    assert not any(KEYS["AWS_SECRET_ACCESS_KEY"].encode() in path.read_bytes() for path in kept)
