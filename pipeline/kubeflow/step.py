"""`python -m pipeline.kubeflow.step`: one step of the compiled pipeline, in a container or anywhere else.

Kubeflow's launcher has fetched the input artifacts, and stores the output artifacts when this process has ended.
"""

import os

os.environ.setdefault("TF_USE_LEGACY_KERAS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import contextlib
import dataclasses
import json
import pathlib
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import click
from kfp.dsl import Artifact

from common.errors import InputError, causes
from common.exit_codes import BLOCKED, MISTAKE
from pipeline.code_version import code_version

TFX = "tfx"  # the key of an artifact's metadata under which its TFX artifact stands, as JSON
MAX_ARGUMENTS = 100_000  # bytes; Linux gives a process one argument of 128 KiB at most


@dataclasses.dataclass
class Task:
    """What Kubeflow says of a step, ExecutorInput in its pipeline_spec.proto, and what the step says of its outputs."""

    executor_input: dict[str, Any]
    parameters: dict[str, str] = dataclasses.field(default_factory=dict)
    metadata: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameters that the step is given."""
        values: dict[str, Any] = self.executor_input.get("inputs", {}).get("parameterValues", {})
        return values

    @property
    def output_parameters(self) -> set[str]:
        return set(self._outputs.get("parameters", {}))

    @property
    def _outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = self.executor_input["outputs"]
        return outputs

    def inputs(self) -> dict[str, dict[str, Any]]:
        """The input artifacts by name, as RuntimeArtifact has them."""
        found = self.executor_input.get("inputs", {}).get("artifacts", {})
        return {name: several["artifacts"][0] for name, several in found.items()}

    def outputs(self) -> dict[str, pathlib.Path]:
        """By name, where an output artifact belongs on this machine."""
        found = self._outputs.get("artifacts", {})
        return {name: local_path(several["artifacts"][0]) for name, several in found.items()}

    def finish(self) -> None:
        """Writes ExecutorOutput: the parameters, and the artifacts' metadata."""
        artifacts = {
            name: {"artifacts": [{**several["artifacts"][0], "metadata": self.metadata.get(name, {})}]}
            for name, several in self._outputs.get("artifacts", {}).items()
        }
        file = pathlib.Path(self._outputs["outputFile"])
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"parameterValues": self.parameters, "artifacts": artifacts}), encoding="utf-8")


def local_path(artifact: dict[str, Any]) -> pathlib.Path:
    """Where the launcher keeps an artifact: minio://bucket/key below /minio, gs:// below /gcs, s3:// below /s3."""
    return pathlib.Path(Artifact(uri=artifact["uri"], metadata=artifact.get("metadata", {})).path)


def tfx_artifact(artifact: dict[str, Any]) -> Any:
    """The TFX artifact that a step before this one has made."""
    from tfx.utils import json_utils

    found = json_utils.loads(artifact["metadata"][TFX])
    found.uri = str(local_path(artifact))
    return found


def input_artifacts(task: Task, shared: pathlib.Path | None) -> dict[str, Any]:
    """The TFX artifacts that a step is given; copies of them in the folder `shared`, where there is one."""
    found = {name: tfx_artifact(artifact) for name, artifact in task.inputs().items()}
    for name, artifact in found.items():
        if shared and pathlib.Path(artifact.uri).exists():  # an object store keeps no empty folder
            shutil.copytree(artifact.uri, shared / name)
            artifact.uri = str(shared / name)
    return found


def run_executor(task: Task, executor: str, classes: dict[str, str]) -> None:
    """Runs a node of the graph as TFX would; where Beam works for it, on copies in a folder that its workers see.

    Args:
        task: The step.
        executor: Dotted name of the node's executor.
        classes: By output, the dotted name of its TFX class.
    """
    from tfx.dsl.components.base import base_beam_executor
    from tfx.orchestration.portable import outputs_utils
    from tfx.utils import import_utils, json_utils

    given = json.loads(task.arguments["arguments"])
    shared = given.get("shared")
    outputs = {name: [import_utils.import_class_by_path(path)()] for name, path in classes.items()}
    outputs_utils.tag_output_artifacts_with_version(outputs)
    found = import_utils.import_class_by_path(executor)
    with _scratch(shared) as scratch:
        given_artifacts = input_artifacts(task, scratch / "inputs" if shared else None)
        inputs = {name: [artifact] for name, artifact in given_artifacts.items()}
        made = {name: scratch / "outputs" / name for name in classes} if shared else task.outputs()
        for name, folder in made.items():
            folder.mkdir(parents=True, exist_ok=True)
            outputs[name][0].uri = str(folder)
        common = {"tmp_dir": str(scratch), "unique_id": "step"}
        if issubclass(found, base_beam_executor.BaseBeamExecutor):
            context = found.Context(beam_pipeline_args=given["beam_args"], **common)
        else:
            context = found.Context(**common)
        found(context).Do(inputs, outputs, given["exec_properties"])
        for name, folder in task.outputs().items():
            _without_links(made[name])
            if shared:
                shutil.copytree(made[name], folder, dirs_exist_ok=True)
            task.metadata[name] = {TFX: json_utils.dumps(outputs[name][0])}


@contextlib.contextmanager
def _scratch(shared: str | None) -> Iterator[pathlib.Path]:
    """A folder for as long as it is needed, in `shared` where that is given."""
    if shared:
        pathlib.Path(shared).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".step-", dir=shared) as folder:
        yield pathlib.Path(folder)


def _without_links(folder: pathlib.Path) -> None:
    """Copies what links lead to: an object store keeps none."""
    for path in [path for path in folder.rglob("*") if path.is_symlink()]:
        target = path.resolve()
        path.unlink()
        if target.is_dir():
            shutil.copytree(target, path)
        else:
            shutil.copy(target, path)


def prepare(task: Task) -> None:
    """Resolves the run: what every other step is to do, from the pipeline's parameters."""
    from pipeline.config import check_config
    from pipeline.kubeflow.nodes import REPORT, arguments, key
    from pipeline.prepared import joined
    from pipeline.run import resolve

    given = task.arguments
    values = {**json.loads(given["config"]), "seed": given["seed"]}
    settings = (f"model={given['model']}", f"training={given['training']}", *given["settings"])
    config = check_config(values, settings, "the pipeline's parameters")
    output = pathlib.Path(given["output"])
    inputs, data = resolve(config, joined(given["data"], config, output), output)
    found = {key(name): text for name, text in arguments(config, inputs).items()}
    report = {"config": config.model_dump(mode="json"), "data": data, "output": str(inputs.output)}
    found[key(REPORT)] = json.dumps(report)
    if set(found) != task.output_parameters:
        raise InputError("the parameter settings changes which steps there are; change the configuration, and compile")
    longest = max(found, key=lambda name: len(found[name]))
    if len(found[longest]) > MAX_ARGUMENTS:
        raise InputError(
            f"the arguments of {longest} have {len(found[longest]):,} bytes, at most {MAX_ARGUMENTS:,} go to a step; "
            "give fewer, larger files as data"
        )
    task.parameters |= found


class StepArtifacts:
    """The input artifacts of the step Report, as `pipeline.results.finish` asks for them."""

    def __init__(self, found: dict[str, Any]):
        self._found = found

    def folder(self, node: str, output: str) -> pathlib.Path:
        return pathlib.Path(self._find(node, output).uri)

    def property(self, node: str, output: str, name: str) -> str | None:
        value = self._find(node, output).mlmd_artifact.custom_properties
        return value[name].string_value if name in value else None

    def _find(self, node: str, output: str) -> Any:
        from pipeline.kubeflow.nodes import key

        return self._found[key(node, output)]


def report(task: Task) -> None:
    """What `ctrpipe run` leaves for people, in the output folder and in Kubeflow's pages."""
    from common.libraries import load_tensorflow
    from pipeline.config import RunConfig
    from pipeline.kubeflow.nodes import VERDICT, key
    from pipeline.results import finish

    load_tensorflow()
    given = json.loads(task.arguments["arguments"])
    output = pathlib.Path(given["output"])
    config = RunConfig.model_validate(given["config"])
    shared = str(output / "tfx") if config.beam_args else None
    with _scratch(shared) as scratch:
        artifacts = StepArtifacts(input_artifacts(task, scratch / "inputs" if shared else None))
        metrics = finish(config, given["data"], code_version(), output, artifacts)
    gates = json.loads((output / "report_data" / "gates.json").read_text())
    failed = [f"{gate['metric']} {gate['reason']}" for gate in gates if not gate["passed"]]
    blocked = "" if metrics["blessed"] else f"blocked by a gate, not pushed: {'; '.join(failed)}"
    drift = "a log is further from the training rows than it may be" if metrics["drift_breached"] else ""
    task.parameters[key(VERDICT)] = blocked or drift
    scalars = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    task.metadata["metrics"] = {name: float(value) for name, value in scalars.items()}
    for name, file in (("metrics", "metrics.json"), ("page", "report.html")):
        path = task.outputs()[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(output / file, path)


def verdict(task: Task) -> None:
    """Ends with exit code 1 where `ctrpipe run` would, so that the run counts as failed."""
    if task.arguments["arguments"]:
        print(f"ctrpipe: {task.arguments['arguments']}", file=sys.stderr)
        sys.exit(BLOCKED)


FUNCTIONS = {"Prepare": prepare, "Report": report, "Verdict": verdict}


@click.command()
@click.option("--stage", required=True)
@click.option("--code_version", "compiled", required=True)
@click.option("--executor")
@click.option("--output", "classes", multiple=True, metavar="NAME=CLASS")
@click.option("--executor_input", required=True)
def main(stage: str, compiled: str, executor: str | None, classes: tuple[str, ...], executor_input: str) -> None:
    """Runs one step of the compiled pipeline."""
    try:
        version = code_version()
        if version != compiled:
            raise InputError(f"this image has code {version}, the pipeline {compiled}; build the image, compile again")
        task = Task(json.loads(executor_input))
        if executor:
            from common.libraries import load_tensorflow

            load_tensorflow()
            run_executor(task, executor, dict(named.split("=", 1) for named in classes))
        else:
            FUNCTIONS[stage](task)
        task.finish()
    except Exception as error:
        mistake = next((cause for cause in causes(error) if isinstance(cause, InputError)), None)
        if mistake is None:
            raise
        print(f"ctrpipe: {mistake}", file=sys.stderr)
        sys.exit(MISTAKE)


if __name__ == "__main__":
    main()
