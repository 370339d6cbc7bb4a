"""Runs a compiled pipeline as open-source Kubeflow's driver and launcher do, each task in a process of its own.

Artifacts lie in a folder in place of a bucket, which keeps neither links nor empty folders. The driver's part, see
backend/src/v2/driver in kubeflow/pipelines: parameters in `parameterValues`, artifacts with `schemaTitle` and
`schemaVersion` and the metadata that was published with them. The launcher's: `{{$}}` becomes the executor input; of
the executor output, parameters and metadata count.
"""

import concurrent.futures
import os
import pathlib
import subprocess
import sys
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

ROOT = pathlib.Path(__file__).parents[2]


class Launcher:
    """Runs the tasks of a compiled file; `finished` has each task's ExecutorOutput, `failed` what a task has said."""

    def __init__(self, package: pathlib.Path, root: pathlib.Path, parameters: dict[str, Any]):
        self.spec = next(yaml.safe_load_all(package.read_text()))
        self.tasks = self.spec["root"]["dag"]["tasks"]
        self.finished: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, tuple[int, str]] = {}
        self._root = root
        definitions = self.spec["root"]["inputDefinitions"]["parameters"]
        assert set(parameters) <= set(definitions)
        defaults = {name: found["defaultValue"] for name, found in definitions.items() if "defaultValue" in found}
        self._parameters = {**defaults, **parameters}
        assert set(self._parameters) == set(definitions)

    def order(self) -> list[str]:
        """The tasks, each after those that it depends on."""
        done: list[str] = []
        while len(done) < len(self.tasks):
            ready = [
                name
                for name, task in self.tasks.items()
                if name not in done and set(task.get("dependentTasks", [])) <= set(done)
            ]
            assert ready, "the tasks depend on each other in a ring"
            done += ready
        return done

    def run(self, processes: int = 2) -> None:
        """Runs every task once those that it depends on are done; where one fails, they do not run."""
        running: dict[concurrent.futures.Future, str] = {}
        started: set[str] = set()
        with concurrent.futures.ThreadPoolExecutor(processes) as pool:
            while True:
                for name in self.order():
                    if name not in started and set(self.tasks[name].get("dependentTasks", [])) <= set(self.finished):
                        started.add(name)
                        running[pool.submit(self._run, name)] = name
                if not running:
                    return
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    running.pop(future)
                    future.result()

    def executor_input(self, name: str) -> dict[str, Any]:
        task = self.tasks[name]
        component = self.spec["components"][task["componentRef"]["name"]]
        values, artifacts = {}, {}
        for key, source in task.get("inputs", {}).get("parameters", {}).items():
            values[key] = self._parameter(source)
        for key, source in task.get("inputs", {}).get("artifacts", {}).items():
            output = source["taskOutputArtifact"]
            artifacts[key] = self.finished[output["producerTask"]]["artifacts"][output["outputArtifactKey"]]
        outputs = component.get("outputDefinitions", {})
        folder = self._root / name
        return {
            "inputs": {"parameterValues": values, "artifacts": artifacts},
            "outputs": {
                "artifacts": {
                    key: {"artifacts": [{"type": found["artifactType"], "uri": str(folder / key)}]}
                    for key, found in outputs.get("artifacts", {}).items()
                },
                "parameters": {
                    key: {"outputFile": str(folder / "parameters" / key)} for key in outputs.get("parameters", {})
                },
                "outputFile": str(folder / "output_metadata.json"),
            },
        }

    def _parameter(self, source: dict[str, Any]) -> Any:
        if "componentInputParameter" in source:
            return self._parameters[source["componentInputParameter"]]
        if "taskOutputParameter" in source:
            output = source["taskOutputParameter"]
            return self.finished[output["producerTask"]]["parameterValues"][output["outputParameterKey"]]
        return source["runtimeValue"]["constant"]

    def _run(self, name: str) -> None:
        given = json_format.ParseDict(self.executor_input(name), pipeline_spec_pb2.ExecutorInput())
        label = self.spec["components"][self.tasks[name]["componentRef"]["name"]]["executorLabel"]
        container = self.spec["deploymentSpec"]["executors"][label]["container"]
        command = [*container["command"], *container["args"]]
        assert command[0] == "python" and command[-1] == "{{$}}"
        command = [sys.executable, *command[1:-1], json_format.MessageToJson(given, indent=None)]
        folder = self._root / name
        (folder / "parameters").mkdir(parents=True)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}
        ended = subprocess.run(
            command, env={**environment, "PYTHONPATH": str(ROOT)}, cwd=folder, capture_output=True, text=True
        )
        if ended.returncode:
            self.failed[name] = (ended.returncode, ended.stderr)
            return
        output = json_format.Parse(
            pathlib.Path(given.outputs.output_file).read_text(), pipeline_spec_pb2.ExecutorOutput()
        )
        written = json_format.MessageToDict(output)
        assert set(written.get("parameterValues", {})) == set(given.outputs.parameters)
        stored = {}
        for key, found in (
            json_format.MessageToDict(given.outputs)["artifacts"].items() if given.outputs.artifacts else []
        ):
            [artifact] = found["artifacts"]
            _keep_what_a_bucket_keeps(pathlib.Path(artifact["uri"]))
            [said] = written["artifacts"][key]["artifacts"]
            stored[key] = {"artifacts": [{**artifact, "metadata": said.get("metadata", {})}]}
        self.finished[name] = {"parameterValues": written.get("parameterValues", {}), "artifacts": stored}


def _keep_what_a_bucket_keeps(artifact: pathlib.Path) -> None:
    paths = sorted(artifact.rglob("*"), reverse=True)
    assert not [path for path in paths if path.is_symlink()]
    for path in [*paths, artifact]:
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
