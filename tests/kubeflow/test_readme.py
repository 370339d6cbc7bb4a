"""The commands of kubeflow/README.md's steps, as far as they need no cluster: each that it shows is run or named here.

`docker build` is `make image`'s, whose images tests/image runs; a port is forwarded by a cluster alone.
"""

import pathlib
import re
import shlex
import shutil
import subprocess

import pytest
import yaml

from ctrpipe.pipeline.kubeflow import submit
from tests.e2e.small_run import ROOT, call
from tests.kubeflow.api import running_api
from tests.kubeflow.manifests import FOLDER, invalid
from tests.kubeflow.test_image_and_manifests import CUSTOM

TEXT = (FOLDER / "README.md").read_text()
STEPS = TEXT[: TEXT.index("\n| what |")]
NEED_A_CLUSTER = {"kubectl -n kubeflow port-forward svc/ml-pipeline 8888:8888 &"}


def blocks(language: str) -> list[str]:
    """The steps' fenced blocks of a language, without their indentation."""
    found = re.findall(r"^   ```(\w*)\n(.*?)^   ```$", STEPS, re.M | re.S)
    return [re.sub(r"^   ", "", block, flags=re.M) for its_language, block in found if its_language == language]


COMMANDS = [
    *(line for block in blocks("") for line in block.splitlines()),
    *(code for code in re.findall(r"`([^`\n]+)`", STEPS) if code.startswith(("kubectl ", "docker ", "make "))),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> pathlib.Path:
    """The folder in which demo.yaml, with the section that the README shows, is compiled by its own command."""
    folder = tmp_path_factory.mktemp("readme")
    [section] = blocks("yaml")
    (folder / "demo.yaml").write_text((ROOT / "configs" / "demo.yaml").read_text() + section)
    [command] = [line for line in COMMANDS if line.startswith("ctrpipe compile")]
    words = [str(folder / word) if word.endswith(".yaml") else word for word in shlex.split(command)[1:]]
    code, output = call(*words)
    assert code == 0, output
    return folder


def test_every_command_of_the_steps_is_known_here():
    kinds = {
        "docker build": 1,
        "kubectl apply -k": len(re.findall("kubectl apply -k", STEPS)),
        "ctrpipe compile": 1,
        "ctrpipe submit": 1,
        "make image": 1,
    }
    found = {kind: sum(command.startswith(kind) for command in COMMANDS) for kind in kinds}
    assert found == kinds and sum(kinds.values()) + len(NEED_A_CLUSTER) == len(COMMANDS)


@pytest.mark.slow
def test_the_image_that_is_built_is_the_one_that_the_steps_run_in(compiled):
    [build] = [command for command in COMMANDS if command.startswith("docker build")]
    built, pushed = (shlex.split(part) for part in build.split(" && "))
    assert (ROOT / built[built.index("-f") + 1]).is_file()
    image = built[built.index("-t") + 1]
    assert pushed == ["docker", "push", image]
    spec = next(yaml.safe_load_all((compiled / "pipeline.yaml").read_text()))
    images = {executor["container"]["image"] for executor in spec["deploymentSpec"]["executors"].values()}
    assert images == {image}


@pytest.mark.slow
def test_the_compiled_pipeline_is_submitted_and_followed_by_the_command_shown(compiled, monkeypatch):
    monkeypatch.setattr(submit.time, "sleep", lambda seconds: None)
    [command] = [line for line in COMMANDS if line.startswith("ctrpipe submit")]
    with running_api(states=[("RUNNING", []), ("SUCCEEDED", [])]) as api:
        words = [{"http://localhost:8888": api.url}.get(word, word) for word in shlex.split(command)[1:]]
        words[words.index("pipeline.yaml")] = str(compiled / "pipeline.yaml")
        code, output = call(*words)
        assert code == 0, output
        [sent] = api.runs
        recurring = re.search(r"`(--recurring [^`]*)`", STEPS)[1]
        assert '"0 4 * * *"' in recurring
        code, output = call(*words, *shlex.split(recurring))
        assert code == 0, output
        [schedule] = api.schedules
    assert sent["runtime_config"]["parameters"]["data"] == ["/data/log.tsv"] and sent["service_account"] == "ctrpipe"
    assert schedule["trigger"]["cron_schedule"]["cron"] == "0 0 4 * * *"


@pytest.mark.skipif(not shutil.which("kubectl"), reason="kubectl is not installed")
@pytest.mark.parametrize("command", [command for command in COMMANDS if command.startswith("kubectl apply")])
def test_what_is_applied_is_built_by_kustomize_and_taken_by_kubernetes(command):
    folder = command.removeprefix("kubectl apply -k ")
    built = subprocess.run(["kubectl", "kustomize", folder], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert built.returncode == 0, built.stderr
    found = list(yaml.safe_load_all(built.stdout))
    assert found and not [document for document in found if document["kind"] not in CUSTOM and invalid(document)]
