"""The work of the steps: resolves the run, runs a node's executor as TFX does, and writes the report."""

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

from ctrpipe.common.code_version import code_version
from ctrpipe.common.errors import InputError
from ctrpipe.common.files import write_json
from ctrpipe.common.store_folders import work_folder
from ctrpipe.common.stores import is_url
from ctrpipe.pipeline.components import atomic_pusher
from ctrpipe.pipeline.components.log_example_gen import ExampleGenSettings
from ctrpipe.pipeline.components.settings import short_json
from ctrpipe.pipeline.components.trainer_settings import TrainerSettings
from ctrpipe.pipeline.config import RunConfig, check_config
from ctrpipe.pipeline.kubeflow import shown
from ctrpipe.pipeline.kubeflow.nodes import arguments, key, reads_log
from ctrpipe.pipeline.kubeflow.task import (
    CLASSIFICATION,
    MAX_ARGUMENTS,
    REPORT,
    SECTIONS,
    TENSORBOARD,
    VERDICT,
    VIEWERS,
    Task,
    local_path,
    sent_bytes,
)
from ctrpipe.pipeline.run.prepared import joined
from ctrpipe.pipeline.run.results import finish
from ctrpipe.pipeline.run.run import resolve
from ctrpipe.pipeline.run.stored_run import (
    fetch_handed_on,
    hand_on,
    models_of,
    push_newest,
    upload_run,
    with_newest,
    write_dead_letters,
)
from ctrpipe.pipeline.run.trained_model import KEPT_BY_VERSION, keep_by_version

TFX = "tfx"  # metadata key of an artifact that holds its TFX artifact, as JSON
# Key of a step's arguments: the URLs of the folders that the step uses, with the name of the run's model; of Report's
# that of the run's folder.
STORED = "stored"
DEAD_LETTERS = "dead_letter"  # folder of the malformed rows: in an artifact of the log, and in the run's folder


def tfx_artifact(artifact: dict[str, Any]) -> Any:
    """Returns the TFX artifact of an input artifact, with its local path."""
    made = json_utils.loads(artifact["metadata"][TFX])
    made.uri = str(local_path(artifact))
    return made


def input_artifacts(task: Task, shared: pathlib.Path | None) -> dict[str, Any]:
    """Returns the step's input artifacts as TFX artifacts. Copies them into the folder `shared` unless it is None."""
    artifacts = {name: tfx_artifact(artifact) for name, artifact in task.inputs().items()}
    for name, artifact in artifacts.items():
        if shared and pathlib.Path(artifact.uri).exists():  # an object store has no empty folders
            shutil.copytree(artifact.uri, shared / name)
            artifact.uri = str(shared / name)
    return artifacts


def run_executor(task: Task, executor: str, classes: dict[str, str]) -> None:
    """Runs a node of the graph as TFX does. With Beam, works on copies in a folder that Beam's workers can see.

    Args:
        task: The step.
        executor: Dotted name of the node's executor.
        classes: For each output, the dotted name of its TFX class.
    """
    given = json.loads(task.arguments["arguments"])
    shared, stored = given.get("shared"), given.get(STORED, [])
    properties = json.dumps(given["exec_properties"], ensure_ascii=False)
    _fetch(stored, properties)
    outputs = {name: [import_utils.import_class_by_path(path)()] for name, path in classes.items()}
    outputs_utils.tag_output_artifacts_with_version(outputs)
    executor_class = import_utils.import_class_by_path(executor)
    with _scratch(shared) as scratch:
        given_artifacts = input_artifacts(task, scratch / "inputs" if shared else None)
        inputs = {name: [artifact] for name, artifact in given_artifacts.items()}
        declared = {name: task.outputs()[name] for name in classes}
        made = {name: scratch / "outputs" / name for name in classes} if shared else declared
        for name, folder in made.items():
            folder.mkdir(parents=True, exist_ok=True)
            outputs[name][0].uri = str(folder)
        common = {"tmp_dir": str(scratch), "unique_id": "step"}
        if issubclass(executor_class, base_beam_executor.BaseBeamExecutor):
            context = executor_class.Context(beam_pipeline_args=given["beam_args"], **common)
        else:
            context = executor_class.Context(**common)
        try:
            executor_class(context).Do(inputs, outputs, given["exec_properties"])
        except InputError as error:
            raise InputError(_with_urls(str(error), stored)) from error
        finally:
            for place in stored:
                write_dead_letters(place["url"])
        pushed_to = _push(stored, properties) if issubclass(executor_class, atomic_pusher.Executor) else None
        if reads_log(executor):
            _keep_dead_letters(given["exec_properties"]["settings"], made["examples"])
        for name, folder in declared.items():
            _without_links(made[name])
            if shared:
                shutil.copytree(made[name], folder, dirs_exist_ok=True)
            read = [
                pathlib.Path(artifact.uri) for artifact in given_artifacts.values() if artifact.type_name == "Examples"
            ]
            of_pages = shown.of_artifact(outputs[name][0], [folder, *read], pushed_to)
            task.metadata[name] = {TFX: json_utils.dumps(outputs[name][0]), **of_pages}
    if TENSORBOARD in task.outputs():
        settings = TrainerSettings.model_validate_json(given["exec_properties"]["settings"])
        _keep_tensorboard(task, settings.work)


def _fetch(stored: list[dict[str, str]], properties: str) -> None:
    """Downloads the objects that a step's properties name, because the step has its own disk."""
    for place in stored:
        if _uses_models(place["url"], properties):
            with_newest(place["url"], place["model"])
        fetch_handed_on(place["url"], properties)
        (work_folder(place["url"]) / "tfx").mkdir(parents=True, exist_ok=True)


def _with_urls(text: str, stored: list[dict[str, str]]) -> str:
    """Replaces the local copies of folders in a text by their URLs."""
    for place in stored:
        text = text.replace(str(work_folder(place["url"])), place["url"].rstrip("/"))
    return text


def _push(stored: list[dict[str, str]], properties: str) -> str | None:
    """Writes the pushed version to the store, and returns the URL of the versions. None if they are on a volume."""
    for place in stored:
        if _uses_models(place["url"], properties):
            push_newest(place["url"], place["model"])
            return models_of(place["url"], place["model"])
    return None


def _uses_models(url: str, properties: str) -> bool:
    """Returns whether a step's properties name versions, or Keras models, in the folder of a URL."""
    return any(f"{work_folder(url)}/{name}/" in properties for name in ("models", KEPT_BY_VERSION))


def _keep_dead_letters(settings: str, examples: pathlib.Path) -> None:
    """Keeps a log's malformed rows with its artifact, for runs in other folders that reuse it from the cache."""
    letters = ExampleGenSettings.model_validate_json(settings).dead_letter
    if letters.exists():
        shutil.copytree(letters, examples / DEAD_LETTERS, dirs_exist_ok=True)


def _keep_tensorboard(task: Task, work: pathlib.Path) -> None:
    """Keeps the event files of a training run, and links to them."""
    uri, folder = task.uri(TENSORBOARD), task.outputs()[TENSORBOARD]
    folder.mkdir(parents=True, exist_ok=True)
    shown.keep_tensorboard(work, folder, uri, task.outputs()[VIEWERS])
    task.metadata |= {TENSORBOARD: {}, VIEWERS: {}}


@contextlib.contextmanager
def _scratch(shared: str | None) -> Iterator[pathlib.Path]:
    """Makes a temporary folder for the duration of the block, inside `shared` if given."""
    if shared:
        pathlib.Path(shared).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".step-", dir=shared) as folder:
        yield pathlib.Path(folder)


def _without_links(folder: pathlib.Path) -> None:
    """Replaces the links in a folder by copies of their targets, because an object store has no links."""
    for path in [path for path in folder.rglob("*") if path.is_symlink()]:
        target = path.resolve()
        path.unlink()
        if target.is_dir():
            shutil.copytree(target, path)
        else:
            shutil.copy(target, path)


def prepare(task: Task) -> None:
    """Resolves the run from the pipeline's parameters, and outputs the arguments of every other step.

    The steps work in `place`, the folder that the configuration names, and only what is pushed or reported lies in the
    run's `output`: arguments are a part of the cache's key, and few of them name `output`.
    """
    given = task.arguments
    values = {**json.loads(given["config"]), "seed": given["seed"]}
    sections = [f"{section}={given[section]}" for section in SECTIONS]
    settings = (*sections, *given["settings"])
    config = check_config(values, settings, "the pipeline's parameters")
    model = config.serving.model_name
    place = work_folder(given["place"]) if is_url(given["place"]) else pathlib.Path(given["place"])
    output = with_newest(given["output"], model) if is_url(given["output"]) else pathlib.Path(given["output"])
    config, files = config.placed(joined(given["data"], config, output))
    inputs, data = resolve(config, files, output, place)
    urls = [url for url in dict.fromkeys((given["place"], given["output"])) if is_url(url)]
    by_step = {key(name): _with_stores(text, urls, model) for name, text in arguments(config, inputs).items()}
    report = {"config": json.loads(short_json(config)), "data": data, "output": str(inputs.output)}
    for url in urls:
        hand_on(url)
    if is_url(given["output"]):
        report[STORED] = {"url": given["output"], "model": model}
    by_step[key(REPORT)] = json.dumps(report)
    if set(by_step) != task.output_parameters:
        raise InputError("the parameter settings would change the steps; change the configuration, and compile again")
    bytes_of = {name: sent_bytes(text) for name, text in by_step.items()}
    longest = max(bytes_of, key=bytes_of.__getitem__)
    if bytes_of[longest] > MAX_ARGUMENTS:
        raise InputError(
            f"the arguments of {longest} have {bytes_of[longest]:,} bytes, at most {MAX_ARGUMENTS:,} go to a step; "
            "give fewer, larger files as data"
        )
    task.parameters |= by_step


def _with_stores(text: str, urls: list[str], model: str) -> str:
    """Returns a step's arguments with the URLs in whose folders it works."""
    values = json.loads(text)
    properties = json.dumps(values["exec_properties"], ensure_ascii=False)
    used = [{"url": url, "model": model} for url in urls if f"{work_folder(url)}/" in properties]
    return json.dumps(values | {STORED: used}) if used else text


class StepArtifacts:
    """The input artifacts of the step Report, for `ctrpipe.pipeline.run.results.finish`."""

    def __init__(self, artifacts: dict[str, Any]):
        self._artifacts = artifacts

    def folder(self, node: str, output: str) -> pathlib.Path:
        return pathlib.Path(self._find(node, output).uri)

    def property(self, node: str, output: str, name: str) -> str | None:
        value = self._find(node, output).mlmd_artifact.custom_properties
        return value[name].string_value if name in value else None

    def _find(self, node: str, output: str) -> Any:
        return self._artifacts[key(node, output)]


def _hand_over_dead_letters(kept: pathlib.Path, output: pathlib.Path) -> None:
    """Copies a log's malformed rows into the run's folder, which the report names."""
    if kept.exists():
        shutil.copytree(kept, output / DEAD_LETTERS, dirs_exist_ok=True)


def report(task: Task) -> None:
    """Writes the run's report and metrics to the output folder, and as artifacts for Kubeflow's pages."""
    given = json.loads(task.arguments["arguments"])
    output = pathlib.Path(given["output"])
    config = RunConfig.model_validate(given["config"])
    shared = str(output / "tfx") if config.beam_args else None
    with _scratch(shared) as scratch:
        if stored := given.get(STORED):
            with_newest(stored["url"], stored["model"])
            output.mkdir(parents=True, exist_ok=True)
        artifacts = StepArtifacts(input_artifacts(task, scratch / "inputs" if shared else None))
        _hand_over_dead_letters(artifacts.folder("LogExampleGen", "examples") / DEAD_LETTERS, output)
        metrics = finish(config, given["data"], code_version(), output, artifacts)
        if pushed := metrics["model_version"]:
            version = output / "models" / config.serving.model_name / pushed
            keep_by_version(artifacts.folder("Trainer", "model"), output, version)
        if stored:
            upload_run(output, stored["url"])
    gates = json.loads((output / "report_data" / "gates.json").read_text())
    failed = [f"{gate['metric']} {gate['reason']}" for gate in gates if not gate["passed"]]
    blocked = "" if metrics["blessed"] else f"blocked by a gate, not pushed: {'; '.join(failed)}"
    drift = "a log is further from the training rows than it may be" if metrics["drift_breached"] else ""
    task.parameters[key(VERDICT)] = blocked or drift
    scalars = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
    curves = shown.classification(output / "report_data" / "predictions.parquet")
    task.metadata |= {"metrics": {name: float(value) for name, value in scalars.items()}, "page": {}}
    task.metadata[CLASSIFICATION] = curves
    for name, file in (("metrics", "metrics.json"), ("page", "report.html")):
        path = task.outputs()[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(output / file, path)
    write_json(task.outputs()[CLASSIFICATION], curves)
