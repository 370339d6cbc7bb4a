"""The shipped trackers: MLflow with a tracking server, and Weights & Biases offline."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import httpx
import pytest

from ctrpipe.pipeline.config.hooks import Hooks
from ctrpipe.pipeline.run.finished import FinishedRun, call_after_run
from ctrpipe.pipeline.trackers.mlflow import flat
from tests.contract.servers import free_port

_START_SECONDS = 180.0


@pytest.fixture(name="run")
def _run(tmp_path):
    folder = tmp_path / "run"
    version = folder / "models" / "ctr" / "17"
    version.mkdir(parents=True)
    (version / "saved_model.pb").write_bytes(b"graph")
    (folder / "report_data").mkdir()
    (folder / "report.html").write_text("<h1>report</h1>")
    return FinishedRun(
        name="mine",
        folder=folder,
        config={"model": {"name": "lr"}, "training": {"epochs": 2}, "data": {"labels": {"ctr": "click"}}},
        metrics={"auc": 0.75, "rig": 0.1, "blessed": True, "model_version": "17"},
        history=({"step": 10, "validation_auc": 0.7}, {"step": 20, "validation_auc": 0.74}),
        version=version,
        columns={"device": "categorical", "price": "numeric"},
    )


def test_nested_settings_are_parameters_with_dots():
    assert dict(flat({"a": {"b": 1, "c": {}}, "d": [2]})) == {"a.b": 1, "a.c": {}, "d": [2]}


@pytest.fixture(name="server")
def _server(tmp_path) -> Iterator[str]:
    pytest.importorskip("mlflow.server", reason="of the package mlflow, which is in no lock")
    address = f"http://127.0.0.1:{(port := free_port())}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.db'}"]
    command += ["--artifacts-destination", str(tmp_path / "artifacts")]
    with open(tmp_path / "server.log", "w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, cwd=tmp_path)
    try:
        end = time.monotonic() + _START_SECONDS
        while True:
            try:
                assert httpx.get(f"{address}/health").text == "OK"
                break
            except httpx.TransportError:
                assert process.poll() is None and time.monotonic() < end, (tmp_path / "server.log").read_text()
                time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait()


@pytest.mark.slow
def test_a_run_is_in_mlflow_with_its_metrics_report_and_model(monkeypatch, server, run):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "clicks")
    mlflow.set_tracking_uri(server)
    call_after_run(run, Hooks(trackers=["mlflow"]))
    client = mlflow.MlflowClient(server)
    [found] = client.search_runs([client.get_experiment_by_name("clicks").experiment_id])
    assert found.info.status == "FINISHED" and found.info.run_name == "mine"
    assert found.data.params["training.epochs"] == "2" and found.data.metrics["test_auc"] == 0.75
    steps = client.get_metric_history(found.info.run_id, "validation_auc")
    assert [(each.step, each.value) for each in steps] == [(10, 0.7), (20, 0.74)]
    assert {file.path for file in client.list_artifacts(found.info.run_id)} == {"report.html", "model"}
    [registered] = client.search_model_versions("name = 'mine'")
    assert registered.run_id == found.info.run_id
    described = mlflow.models.Model.load(registered.source)
    assert described.signature.inputs.input_names() == ["device", "price"]
    assert described.signature.outputs.input_names() == ["ctr"]
    saved = mlflow.artifacts.download_artifacts(f"{registered.source}/saved_model/saved_model.pb")
    with open(saved, "rb") as file:
        assert file.read() == b"graph"
    call_after_run(run, Hooks(trackers=["mlflow"]))  # the same run again is a second version
    assert len(client.search_model_versions("name = 'mine'")) == 2


@pytest.mark.slow
def test_a_run_is_written_for_weights_and_biases_offline(monkeypatch, run):
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    monkeypatch.delenv("WANDB_DIR", raising=False)
    monkeypatch.setenv("WANDB_SILENT", "true")
    call_after_run(run, Hooks(trackers=["wandb"]))
    [offline] = run.folder.glob("wandb/offline-run-*")
    [written] = offline.glob("run-*.wandb")
    assert b"validation_auc" in written.read_bytes() and b"test_auc" in written.read_bytes()
