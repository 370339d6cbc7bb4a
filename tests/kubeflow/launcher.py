"""Runs a compiled pipeline like open-source Kubeflow's driver and launcher, each task in a separate process.

Artifacts lie in a folder instead of a bucket, which keeps neither links nor empty folders. The driver's part, see
backend/src/v2/driver in kubeflow/pipelines: parameters in `parameterValues`, artifacts with `schemaTitle` and
`schemaVersion` and the metadata that was published with them; of output artifacts also `executor-logs`, which no
component declares. The launcher's, backend/src/v2/component/launcher_v2.go: it opens the file of `executor-logs`, with
the number of the attempt at its name's end, and copies into it what the command says; `{{$}}` becomes the executor
input; what the executor output says of an artifact is merged into what the driver gave. Of a task that fails it stores
the logs alone. Argo's part: the command runs with the umask 000.
"""

import concurrent.futures
import json
import os
import pathlib
import subprocess
from typing import Any

import yaml
from google.protobuf import json_format
from kfp.pipeline_spec import pipeline_spec_pb2

from tests.warm_python import INTERPRETER, python

ROOT = pathlib.Path(__file__).parents[2]
OUTPUT = "output_metadata.json"
LOGS = "executor-logs"
COLD = ("logtransform",)  # it imports TensorFlow and TFX itself, as every task does in a cluster


class Launcher:
    """Runs the tasks of a compiled file.

    Attributes:
        finished: Each task's ExecutorOutput.
        failed: The exit code of a task, and what it has said.
        tasks: The tasks by name; those of a group or a loop are added when it starts.
        executed: The tasks whose command was run; the others were in the cache.
        cache: What tasks have put out, by what they were given; of an earlier run, where it is handed on.

    One that `is_warm` runs most tasks in forks of a process that has imported TensorFlow and TFX.
    """

    def __init__(
        self,
        package: pathlib.Path,
        root: pathlib.Path,
        parameters: dict[str, Any],
        cache: dict[str, dict[str, Any]] | None = None,
        is_warm: bool = False,
    ):
        self.spec = next(yaml.safe_load_all(package.read_text()))
        self.tasks = dict(self.spec["root"]["dag"]["tasks"])
        self.finished: dict[str, dict[str, Any]] = {}
        self.failed: dict[str, tuple[int, str]] = {}
        self.executed: list[str] = []
        self.cache = {} if cache is None else cache
        self.bucket = root
        self._is_warm = is_warm
        definitions = self.spec["root"]["inputDefinitions"]["parameters"]
        assert set(parameters) <= set(definitions)
        defaults = {name: found["defaultValue"] for name, found in definitions.items() if "defaultValue" in found}
        self._parameters = {**defaults, **parameters}
        self._inside: dict[str, dict[str, Any]] = {}  # by task of a loop or a group, the parameters that this is given
        self._artifacts: dict[str, Any] = {}  # by task of a group, the artifacts that the group is given
        assert set(self._parameters) == set(definitions)

    def order(self) -> list[str]:
        """Returns the tasks, each after its dependencies."""
        return self._in_order({name: task for name, task in self.tasks.items() if name not in self._inside})

    def _in_order(self, tasks: dict[str, Any]) -> list[str]:
        done: list[str] = []
        while len(done) < len(tasks):
            ready = [
                name
                for name, task in tasks.items()
                if name not in done and set(task.get("dependentTasks", [])) <= set(done)
            ]
            assert ready, "the tasks depend on each other in a ring"
            done += ready
        return done

    def run(self, processes: int = 2) -> None:
        """Runs every task after its dependencies; the dependants of a failed task do not run.

        Called again, it retries what has failed.
        """
        self.failed.clear()
        running: dict[concurrent.futures.Future, str] = {}
        started: set[str] = set()
        with concurrent.futures.ThreadPoolExecutor(processes) as pool:
            while True:
                for name in self.order():
                    if name in started | set(self.finished):
                        continue
                    if set(self.tasks[name].get("dependentTasks", [])) <= set(self.finished):
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
            values[key] = self._parameter(source, self._inside.get(name, self._parameters))
        for key, source in task.get("inputs", {}).get("artifacts", {}).items():
            artifacts[key] = self._artifact(source, self._artifacts.get(name, {}))
        outputs = component.get("outputDefinitions", {})
        written = self.written(name)
        given = {
            key: {"name": key, "type": found["artifactType"], "uri": self.uri(name, key)}
            for key, found in outputs.get("artifacts", {}).items()
        }
        logs = {"name": LOGS, "type": {"schemaTitle": "system.Artifact"}, "uri": self.uri(name, self.log_name(name))}
        return {
            "inputs": {"parameterValues": values, "artifacts": artifacts},
            "outputs": {
                "artifacts": {key: {"artifacts": [artifact]} for key, artifact in {**given, LOGS: logs}.items()},
                "parameters": {
                    key: {"outputFile": f"{written}/parameters/{key}"} for key in outputs.get("parameters", {})
                },
                "outputFile": f"{written}/{OUTPUT}",
            },
        }

    def log_name(self, name: str) -> str:
        """Returns the name of the log of a task's next attempt."""
        return f"{LOGS}-{self.executed.count(name)}"

    def uri(self, name: str, key: str) -> str:
        """Returns the URI of an output artifact, as passed to the task."""
        return str(self.bucket / name / key)

    def written(self, name: str) -> str:
        """Returns the folder of a task's messages to its launcher, as passed to the task."""
        return str(self.bucket / name)

    def execute(self, name: str, command: list[str], container: dict[str, Any]) -> tuple[int, str]:
        """Runs a task's command in its folder of the bucket; returns the exit code and the output."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith("TF_")}
        environment["PYTHONPATH"] = str(ROOT)
        first, option, module, *arguments = command
        assert (first, option) == ("python", "-m")
        interpreter = python("tensorflow") if self._is_warm and name not in COLD else [INTERPRETER]
        ended = subprocess.run(
            [*interpreter, option, module, *arguments],
            env=environment,
            cwd=self.bucket / name,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            umask=0,
        )
        return ended.returncode, ended.stdout

    def _parameter(self, source: dict[str, Any], given: dict[str, Any]) -> Any:
        if "componentInputParameter" in source:
            return given[source["componentInputParameter"]]
        if "taskOutputParameter" in source:
            output = source["taskOutputParameter"]
            return self.finished[output["producerTask"]]["parameterValues"][output["outputParameterKey"]]
        return source["runtimeValue"]["constant"]

    def _artifact(self, source: dict[str, Any], given: dict[str, Any]) -> Any:
        if "componentInputArtifact" in source:
            return given[source["componentInputArtifact"]]
        output = source["taskOutputArtifact"]
        return self.finished[output["producerTask"]]["artifacts"][output["outputArtifactKey"]]

    def _given(self, name: str) -> dict[str, Any]:
        """Returns the parameters that a loop or a group is given."""
        sources = self.tasks[name].get("inputs", {}).get("parameters", {})
        return {key: self._parameter(source, self._parameters) for key, source in sources.items()}

    def _group(self, name: str, dag: dict[str, Any]) -> None:
        """Runs the tasks of a group under their own names, one after the other."""
        sources = self.tasks[name].get("inputs", {}).get("artifacts", {})
        artifacts = {key: self._artifact(source, {}) for key, source in sources.items()}
        for key in self._in_order(dag["tasks"]):
            self.tasks[key] = dag["tasks"][key]
            self._inside[key], self._artifacts[key] = self._given(name), artifacts
            if key not in self.finished:
                self._run(key)
            if key in self.failed:
                self.failed[name] = self.failed[key]
                return
        returned = {}
        for key, output in dag.get("outputs", {}).get("artifacts", {}).items():
            [selector] = output["artifactSelectors"]
            returned[key] = self.finished[selector["producerSubtask"]]["artifacts"][selector["outputArtifactKey"]]
        self.finished[name] = {"parameterValues": {}, "artifacts": returned}

    def _loop(self, name: str, tasks: dict[str, Any]) -> None:
        """Runs the tasks of a loop for each item, as `<loop>/<number>/<task>`; Argo ends after a loop without items."""
        task = self.tasks[name]
        given = self._given(name)
        iterator = task["parameterIterator"]
        items = given[iterator["items"]["inputParameter"]]
        assert items and isinstance(items, list)
        for number, item in enumerate(items):
            for key, inner in tasks.items():
                inside = f"{name}/{number}/{key}"
                self.tasks[inside] = inner
                self._inside[inside] = {**given, iterator["itemInput"]: item}
                if inside not in self.finished:
                    self._run(inside)
                if inside in self.failed:
                    self.failed[name] = self.failed[inside]
                    return
        self.finished[name] = {}

    def _run(self, name: str) -> None:
        component = self.spec["components"][self.tasks[name]["componentRef"]["name"]]
        if "dag" in component:
            is_loop = "parameterIterator" in self.tasks[name]
            self._loop(name, component["dag"]["tasks"]) if is_loop else self._group(name, component["dag"])
            return
        executor_input = self.executor_input(name)
        given = json_format.ParseDict(executor_input, pipeline_spec_pb2.ExecutorInput())
        label = component["executorLabel"]
        container = self.spec["deploymentSpec"]["executors"][label]["container"]
        key = _cache_key(executor_input, component, container)
        if self.tasks[name].get("cachingOptions", {}).get("enableCache") and key in self.cache:
            self.finished[name] = self.cache[key]
            return
        log = self.bucket / name / self.log_name(name)
        self.executed.append(name)
        command = [*container["command"], *container["args"]]
        assert command[0] == "python" and command[-1] == "{{$}}"
        (self.bucket / name / "parameters").mkdir(parents=True, exist_ok=True)
        log.touch()
        command = [*command[:-1], json_format.MessageToJson(given, indent=None)]
        code, said = self.execute(name, command, container)
        log.write_text(said)
        if code:
            self.failed[name] = (code, said)
            return
        output = json_format.Parse((self.bucket / name / OUTPUT).read_text(), pipeline_spec_pb2.ExecutorOutput())
        written = json_format.MessageToDict(output)
        assert set(written.get("parameterValues", {})) == set(given.outputs.parameters)
        stored = {}
        for output_name, found in json_format.MessageToDict(given.outputs)["artifacts"].items():
            [artifact] = found["artifacts"]
            _keep_what_a_bucket_keeps(self.bucket / name / output_name)
            [told] = written.get("artifacts", {}).get(output_name, found)["artifacts"]
            if output_name != LOGS:
                artifact |= {"uri": told["uri"], "metadata": artifact.get("metadata", {}) | told.get("metadata", {})}
            stored[output_name] = {"artifacts": [artifact]}
        self.finished[name] = {"parameterValues": written.get("parameterValues", {}), "artifacts": stored}
        self.cache[key] = self.finished[name]


def _cache_key(executor_input: dict[str, Any], component: dict[str, Any], container: dict[str, Any]) -> str:
    """Returns the key of the driver's cache, see GenerateCacheKey in backend/src/v2/cacheutils/cache.go.

    Of an artifact that is its number in the metadata store, which its place stands for here. Environment and metadata
    are not in it, nor are the names of volumes, which are those of the pipeline.
    """
    inputs = executor_input["inputs"]
    read = {name: [each["uri"] for each in found["artifacts"]] for name, found in inputs["artifacts"].items()}
    command = [container["image"], *container.get("command", ()), *container.get("args", ())]
    return json.dumps([read, inputs["parameterValues"], component.get("outputDefinitions"), command], sort_keys=True)


def _keep_what_a_bucket_keeps(artifact: pathlib.Path) -> None:
    paths = sorted(artifact.rglob("*"), reverse=True)
    assert not [path for path in paths if path.is_symlink()]
    for path in [*paths, artifact]:
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
