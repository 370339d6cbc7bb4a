"""What the steps do: run a node's executor as TFX would, resolve a run, write its report."""

import contextlib
import json
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

from tfx.dsl.components.base import base_beam_executor
from tfx.orchestration.portable import outputs_utils
from tfx.utils import import_utils, json_utils

from common.errors import InputError
from pipeline.code_version import code_version
from pipeline.config import RunConfig, check_config
from pipeline.kubeflow.nodes import arguments, key
from pipeline.kubeflow.task import REPORT, VERDICT, Task, local_path
from pipeline.prepared import joined
from pipeline.results import finish
from pipeline.run import resolve

TFX = "tfx"  # the key of an artifact's metadata under which its TFX artifact stands, as JSON
MAX_ARGUMENTS = 100_000  # bytes; Linux gives a process one argument of 128 KiB at most


def tfx_artifact(artifact: dict[str, Any]) -> Any:
    """Returns the TFX artifact that a step before this one has made."""
    made = json_utils.loads(artifact["metadata"][TFX])
    made.uri = str(local_path(artifact))
    return made


def input_artifacts(task: Task, shared: pathlib.Path | None) -> dict[str, Any]:
    """Returns the TFX artifacts that a step is given; copies of them in the folder `shared`, where there is one."""
    artifacts = {name: tfx_artifact(artifact) for name, artifact in task.inputs().items()}
    for name, artifact in artifacts.items():
        if shared and pathlib.Path(artifact.uri).exists():  # an object store keeps no empty folder
            shutil.copytree(artifact.uri, shared / name)
            artifact.uri = str(shared / name)
    return artifacts


def run_executor(task: Task, executor: str, classes: dict[str, str]) -> None:
    """Runs a node of the graph as TFX would; where Beam works for it, on copies in a folder that its workers see.

    Args:
        task: The step.
        executor: Dotted name of the node's executor.
        classes: By output, the dotted name of its TFX class.
    """
    given = json.loads(task.arguments["arguments"])
    shared = given.get("shared")
    outputs = {name: [import_utils.import_class_by_path(path)()] for name, path in classes.items()}
    outputs_utils.tag_output_artifacts_with_version(outputs)
    executor_class = import_utils.import_class_by_path(executor)
    with _scratch(shared) as scratch:
        given_artifacts = input_artifacts(task, scratch / "inputs" if shared else None)
        inputs = {name: [artifact] for name, artifact in given_artifacts.items()}
        made = {name: scratch / "outputs" / name for name in classes} if shared else task.outputs()
        for name, folder in made.items():
            folder.mkdir(parents=True, exist_ok=True)
            outputs[name][0].uri = str(folder)
        common = {"tmp_dir": str(scratch), "unique_id": "step"}
        if issubclass(executor_class, base_beam_executor.BaseBeamExecutor):
            context = executor_class.Context(beam_pipeline_args=given["beam_args"], **common)
        else:
            context = executor_class.Context(**common)
        executor_class(context).Do(inputs, outputs, given["exec_properties"])
        for name, folder in task.outputs().items():
            _without_links(made[name])
            if shared:
                shutil.copytree(made[name], folder, dirs_exist_ok=True)
            task.metadata[name] = {TFX: json_utils.dumps(outputs[name][0])}


@contextlib.contextmanager
def _scratch(shared: str | None) -> Iterator[pathlib.Path]:
    """Makes a folder for as long as the block runs, in `shared` where that is given."""
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
    given = task.arguments
    values = {**json.loads(given["config"]), "seed": given["seed"]}
    settings = (f"model={given['model']}", f"training={given['training']}", *given["settings"])
    config = check_config(values, settings, "the pipeline's parameters")
    output = pathlib.Path(given["output"])
    inputs, data = resolve(config, joined(given["data"], config, output), output)
    told = {key(name): text for name, text in arguments(config, inputs).items()}
    report = {"config": config.model_dump(mode="json"), "data": data, "output": str(inputs.output)}
    told[key(REPORT)] = json.dumps(report)
    if set(told) != task.output_parameters:
        raise InputError("the parameter settings changes which steps there are; change the configuration, and compile")
    longest = max(told, key=lambda name: len(told[name]))
    if len(told[longest]) > MAX_ARGUMENTS:
        raise InputError(
            f"the arguments of {longest} have {len(told[longest]):,} bytes, at most {MAX_ARGUMENTS:,} go to a step; "
            "give fewer, larger files as data"
        )
    task.parameters |= told


class StepArtifacts:
    """The input artifacts of the step Report, as `pipeline.results.finish` asks for them."""

    def __init__(self, artifacts: dict[str, Any]):
        self._artifacts = artifacts

    def folder(self, node: str, output: str) -> pathlib.Path:
        return pathlib.Path(self._find(node, output).uri)

    def property(self, node: str, output: str, name: str) -> str | None:
        value = self._find(node, output).mlmd_artifact.custom_properties
        return value[name].string_value if name in value else None

    def _find(self, node: str, output: str) -> Any:
        return self._artifacts[key(node, output)]


def report(task: Task) -> None:
    """Writes what `ctrpipe run` leaves for people, in the output folder and in Kubeflow's pages."""
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
