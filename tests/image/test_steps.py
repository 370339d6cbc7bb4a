"""The compiled pipeline, each step in a separate container, against `ctrpipe run` in this process."""

import json
import shutil
import threading
import time

import pytest
import yaml

from ctrpipe.common.code_version import code_version
from ctrpipe.pipeline.kubeflow import submit
from tests.e2e.small_run import SHORT_CONFIG, call
from tests.image.containers import PIPELINE, engine, needs, writable
from tests.image.steps import ContainerLauncher
from tests.kubeflow.api import running_api
from tests.kubeflow.argo import Ran, argo_id, manifest, tasks

pytestmark = needs(PIPELINE)

ROWS = 600
KILLED = 137  # 128 + SIGKILL: of the kernel, where a limit of memory is broken
NEVER_CACHED = ["prepare", "report", "verdict"]


def compiled(folder, **resources):
    """A log and the compiled pipeline in a folder, which steps mount as /data."""
    folder.mkdir(exist_ok=True)
    kubeflow = {"image": PIPELINE, "volumes": {"ctr-data": "/data"}}
    default = {"cpu": "2", "memory": "3Gi"}
    kubeflow["resources"] = {"default": default, **{name: {**default, **given} for name, given in resources.items()}}
    config = {**SHORT_CONFIG, "seed": 3, "evaluation": {"baseline": {"name": "lr"}}, "kubeflow": kubeflow}
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    assert call("generate", "--rows", ROWS, "--output", folder / "log.tsv")[0] == 0
    code, output = call("compile", folder / "config.yaml", "--output", folder / "pipeline.yaml")
    assert code == 0, output
    return writable(folder)


def launcher(volume, bucket, rights="", cache=None):
    parameters = {"data": ["/data/log.tsv"], "output": "/data/cluster", "settings": ["seed=3"]}
    bucket.mkdir(exist_ok=True)
    claims = {"ctr-data": f"{volume}{rights}"}
    return ContainerLauncher(volume / "pipeline.yaml", bucket, parameters, claims=claims, cache=cache)


@pytest.fixture(scope="module")
def volume(tmp_path_factory):
    return compiled(tmp_path_factory.mktemp("steps") / "volume")


@pytest.fixture(scope="module")
def launched(volume):
    made = launcher(volume, volume.parent / "bucket")
    made.run()
    assert not made.failed, made.failed
    return made


def test_the_metrics_are_those_of_a_run_in_one_process(volume, launched):
    assert set(launched.executed) == set(launched.finished) == set(launched.tasks)
    here = volume.parent / "here"
    code, output = call("run", volume / "config.yaml", "--data", volume / "log.tsv", "--output", here)
    assert code == 0, output
    found = [json.loads((folder / "metrics.json").read_text()) for folder in (here, volume / "cluster")]
    versions = [metrics.pop("model_version") for metrics in found]
    assert all(versions) and found[0]["blessed"] and found[0] == found[1]
    [pushed] = (volume / "cluster" / "models" / "ctr").iterdir()
    assert (pushed / "saved_model.pb").exists()


def test_a_second_run_takes_from_the_cache_what_has_not_changed(volume, launched):
    again = launcher(volume, volume.parent / "bucket", cache=launched.cache)
    again.run()
    assert not again.failed and sorted(again.executed) == NEVER_CACHED


def test_a_step_that_breaks_its_limit_is_killed_and_submit_says_so(tmp_path, monkeypatch):
    volume = compiled(tmp_path / "volume", Trainer={"memory": "300Mi"})
    made = launcher(volume, tmp_path / "bucket")
    made.run()
    [(name, (code, log))] = made.failed.items()
    assert name == "trainer" and code == KILLED
    assert "evaluator" not in made.executed and "report" not in made.executed
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    steps = tasks({"trainer": Ran("FAILED", 90, 30, ("FAILED",))})
    path = "(0).root(0).trainer(0).executor(0)"
    noted = manifest({path: f"OOMKilled (exit code {code})"})
    with running_api(states=[("FAILED", steps)], logs={argo_id(path): log}, manifest=noted) as api:
        arguments = ["--host", api.url, "--param", "data=[/data/log.tsv]"]
        code, output = call("submit", volume / "pipeline.yaml", *arguments)
    assert code == 3 and "raise kubeflow.resources.Trainer.memory, and compile again" in output


def test_a_killed_step_is_retried_and_the_others_are_not(volume, launched, tmp_path):
    other = tmp_path / "volume"
    shutil.copytree(volume, other, ignore=shutil.ignore_patterns("cluster"))
    made = launcher(writable(other), tmp_path / "bucket")

    def kill():
        while "trainer" not in made.containers:
            time.sleep(0.05)
        while engine("kill", made.containers["trainer"]).code:
            time.sleep(0.2)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    made.run()
    killer.join(60)
    assert set(made.failed) == {"trainer"} and made.failed["trainer"][0] == KILLED
    before = list(made.executed)
    made.run()
    assert not made.failed and set(made.executed) == set(made.tasks)
    assert made.executed.count("trainer") == 2 and all(before.count(name) == 1 for name in before)
    assert all(made.executed.count(name) == 1 for name in made.tasks if name != "trainer")
    metrics = [json.loads((folder / "cluster" / "metrics.json").read_text()) for folder in (volume, other)]
    assert [found.pop("model_version") for found in metrics] and metrics[0] == metrics[1]


def one_line(made, message):
    """A first step that ends as a user's mistake must end."""
    [(name, (code, said))] = made.failed.items()
    assert name == "prepare" and code == 2, said
    [line] = [line for line in said.splitlines() if line.startswith("ctrpipe: ")]
    assert message in line and "Traceback" not in said


def test_an_image_of_other_code_than_the_compiled_file_is_one_line(volume, tmp_path):
    package = volume / "pipeline.yaml"
    other = tmp_path / "other"
    other.mkdir()
    (other / "pipeline.yaml").write_text(package.read_text().replace(code_version(), "0123456789abcdef"))
    made = launcher(other, tmp_path / "bucket")
    made.run()
    one_line(made, f"this image has code {code_version()}, the pipeline 0123456789abcdef; build the image, compile")


def test_a_volume_that_is_read_only_is_one_line(volume, tmp_path):
    fresh = tmp_path / "volume"
    shutil.copytree(volume, fresh, ignore=shutil.ignore_patterns("cluster"))
    made = launcher(writable(fresh), tmp_path / "bucket", rights=":ro")
    made.run()
    one_line(made, "cannot make the output folder (Read-only file system)")
