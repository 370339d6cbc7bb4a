"""`ctrpipe run`: the pipeline on this machine, and the files that it leaves for people."""

import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import shutil
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np

from models.feature_map import FeatureMap
from pipeline.config import Monitoring, RunConfig
from pipeline.progress import announce
from pipeline.quiet import importing, load_tensorflow, tfx_does_without
from transforms.checkpoint import checkpoint_fingerprint
from transforms.errors import InputError
from transforms.parallel import cores, warm
from transforms.read_ahead import reading_ahead
from transforms.readers import RANGE_BYTES, find_files

CODE_FOLDERS = ("models", "transforms", "serving", "pipeline")
METADATA = pathlib.Path("tfx", "metadata.sqlite")  # below a run's folder
MONITORED = ("previous", "serving")
VERSIONS_SHOWN = ("tensorflow", "keras", "tfx", "tensorflow-transform", "apache-beam", "numpy", "pyarrow")


def code_version() -> str:
    """A hash of the project's code, so that changed code is never served from the cache."""
    root = pathlib.Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in CODE_FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def run(config: RunConfig, files: list[str], output: pathlib.Path) -> dict[str, Any]:
    """Runs the pipeline.

    Returns:
        The contents of metrics.json; `blessed` says whether the model was pushed.

    Raises:
        InputError: the data, the configuration or the output folder cannot be used.
    """
    found = find_files(files)
    with working_ahead(config, found, output):
        load_tensorflow()
        _check_model(config)
        check_output(output)
        announce(f"Run {config.name}: {len(found)} file(s), output in {output}")
        monitored = _find_monitored(config.monitoring)
        with one_run_at_a_time(output):
            return _run_pipeline(config, found, monitored, output.resolve())


@contextlib.contextmanager
def working_ahead(config: RunConfig, files: list[str], output: pathlib.Path) -> Iterator[None]:
    """Has the log read, and lets processes get ready, while this one loads its libraries, where that pays.

    Only a folder's first run is sure to read the log; in another, the cache may have what it makes of it.
    """
    crew = config.crew()
    processes = min(crew.most or cores(), cores())
    if crew.beam_args or processes == 1 or sum(map(os.path.getsize, files)) <= RANGE_BYTES:
        yield
        return
    # This process and the one that gets ready take a core each.
    readers = min(processes, cores() - 2)
    with contextlib.ExitStack() as stack:
        is_single = "tensorflow" not in sys.modules and threading.active_count() == 1  # so that it may be copied
        if readers > 0 and is_single and not (output / METADATA).exists():
            seed, near = config.data.split.seed(config.seed), (output / METADATA).parent
            with contextlib.suppress(OSError):  # what is wrong with the folder is said in time
                stack.enter_context(reading_ahead(config.log_spec, _absolute(files), seed, near, readers))
        warm("pipeline.worker_modules")
        yield


def _absolute(files: list[str]) -> list[str]:
    return [str(pathlib.Path(path).resolve()) for path in files]


def _find_monitored(monitoring: Monitoring) -> dict[str, Any]:
    """What RunInputs says of the logs to compare with.

    Raises:
        InputError: a log cannot be read.
    """
    logs = {kind: find_files(getattr(monitoring, kind)) for kind in MONITORED if getattr(monitoring, kind)}
    absolute = {kind: [str(pathlib.Path(path).resolve()) for path in paths] for kind, paths in logs.items()}
    described = [_describe_file(path) for paths in logs.values() for path in paths]
    return {
        "monitoring": monitoring.model_copy(update=absolute),
        "monitored_fingerprint": _fingerprint_files(described) if described else "",
    }


def _run_pipeline(config: RunConfig, files: list[str], monitored: dict[str, Any], output: pathlib.Path) -> dict:
    announce("Loading TFX")
    with importing(*tfx_does_without(config.beam_args)), _described(files) as described:
        from tfx.orchestration.local.local_dag_runner import LocalDagRunner

        from pipeline.artifacts import Artifacts
        from pipeline.graph import create_pipeline

    data = described.result()
    inputs = _complete(config, _run_inputs(config, files, data, output), monitored)
    with _announced_stages():
        LocalDagRunner().run(create_pipeline(config, inputs))
    artifacts = Artifacts(output / METADATA, config.name)
    return finish(config, data, inputs.code_version, output, artifacts)


def resolve(config: RunConfig, files: list[str], output: pathlib.Path) -> tuple[Any, list[dict[str, Any]]]:
    """The checks of `run`, for a graph that something else runs.

    Returns:
        The graph's RunInputs, and what `finish` wants to know of the log's files.

    Raises:
        InputError: as `run` does.
    """
    found = find_files(files)
    load_tensorflow()
    _check_model(config)
    check_output(output)
    data = [_describe_file(path) for path in found]
    inputs = _run_inputs(config, found, data, output.resolve())
    return _complete(config, inputs, _find_monitored(config.monitoring)), data


def _complete(config: RunConfig, inputs: Any, monitored: dict[str, Any]) -> Any:
    """The RunInputs with the version to beat and the logs to compare with."""
    push_folder = inputs.output / "models" / config.serving.model_name
    newest = _version_to_beat(push_folder, inputs.training_fingerprint(config, config.model))
    return dataclasses.replace(inputs, baseline_version=newest, **monitored)


def _run_inputs(config: RunConfig, files: list[str], data: list[dict[str, Any]], output: pathlib.Path) -> Any:
    from pipeline.graph import RunInputs

    models = [model for model in (config.model, config.evaluation.baseline) if model]
    named = {config.text.encoder if config.text else None, *(model.encoder for model in models)}
    checkpoints = {name: checkpoint_fingerprint(name) for name in sorted(filter(None, named))}
    return RunInputs(
        tuple(_absolute(files)),
        _fingerprint_files(data),
        code_version(),
        output,
        baseline_version="",
        checkpoints=checkpoints,
    )


@dataclasses.dataclass(frozen=True)
class TransformedLog:
    """Patterns of the transformed examples of each split, their feature map, and what they are made from: the folder
    of the checked log's payload (`Split-train` and so on), and the run's inputs."""

    train: list[str]
    validation: list[str]
    test: list[str]
    feature_map: FeatureMap
    payload: pathlib.Path
    inputs: Any  # pipeline.graph.RunInputs, which is not imported before TensorFlow is


def transform(config: RunConfig, files: list[str], output: pathlib.Path) -> TransformedLog:
    """Runs the pipeline up to Transform, from the cache where nothing has changed. The caller holds the folder's lock.

    Raises:
        InputError: the data or the configuration cannot be used.
    """
    found = find_files(files)
    with working_ahead(config, found, output):
        load_tensorflow()
        announce("Loading TFX")
        with importing(*tfx_does_without(config.beam_args)), _described(found) as described:
            import tensorflow_transform as tft
            from tfx.orchestration.local.local_dag_runner import LocalDagRunner

            from pipeline.artifacts import Artifacts
            from pipeline.graph import create_data_pipeline
            from transforms.preprocessing import feature_map

        inputs = _run_inputs(config, found, described.result(), output.resolve())
        with _announced_stages():
            LocalDagRunner().run(create_data_pipeline(config, inputs))
    artifacts = Artifacts(inputs.output / METADATA, config.name)
    examples = artifacts.folder("LogTransform", "transformed_examples")
    train, validation, test = ([str(examples / f"Split-{split}" / "*")] for split in ("train", "validation", "test"))
    graph = tft.TFTransformOutput(str(artifacts.folder("LogTransform", "transform_graph")))
    payload = artifacts.folder("LogExampleGen", "examples")
    return TransformedLog(train, validation, test, feature_map(config.log_spec, graph), payload, inputs)


def check_options(config: RunConfig) -> None:
    """Raises InputError where a model does not exist, or does not have the options that it is given."""
    from models.registry import check_hyperparameters

    for key, model in (("model", config.model), ("evaluation.baseline", config.evaluation.baseline)):
        if model:
            try:
                check_hyperparameters(model.name, **model.hyperparameters)
            except (ValueError, TypeError) as error:
                raise InputError(f"{key}: {' '.join(str(error).split())}") from error


def _check_model(config: RunConfig) -> None:
    from pipeline.training.text_encoder import with_encoder

    check_options(config)
    for model in filter(None, (config.model, config.evaluation.baseline)):
        with_encoder(model, config.text)
    if config.text and config.text.tokens == "checkpoint":
        from transforms.text import read_tokenizer

        read_tokenizer(config.text.encoder)


def check_output(output: pathlib.Path) -> None:
    try:
        output.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise InputError(f"{output}: a file is in the way of the output folder; choose another --output") from error
    except OSError as error:
        raise InputError(f"{output}: cannot make the output folder ({error.strerror})") from error


@contextlib.contextmanager
def one_run_at_a_time(output: pathlib.Path):
    """A lock that a killed run releases, because the kernel holds it."""
    import fcntl

    with open(output / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"{output}: another run works in this folder; wait, or choose another --output") from error
        yield


@contextlib.contextmanager
def _described(files: list[str]) -> Iterator[Future[list[dict[str, Any]]]]:
    """What `_describe_file` says of the files, found out beside the block."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(lambda: [_describe_file(path) for path in files])


def _describe_file(path: str) -> dict[str, Any]:
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    return {"path": path, "bytes": os.path.getsize(path), "sha256": digest.hexdigest()}


def _fingerprint_files(data: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps([file["sha256"] for file in data]).encode()).hexdigest()[:16]


def _version_to_beat(push_folder: pathlib.Path, training_fingerprint: str) -> str:
    """The newest pushed version that another training made, so that repeating a run finds everything in the cache."""
    from serving.layout import versions

    for version in reversed(versions(push_folder)):
        made_by = version / "assets.extra" / "training_fingerprint"
        if not made_by.exists() or made_by.read_text() != training_fingerprint:
            return version.name
    return ""


# What TFX says ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _announced_stages():
    """A line as each component starts or is found in the cache; TFX has no hook for it but its log."""
    from tfx.orchestration.portable.launcher import Launcher

    original = Launcher._prepare_execution

    def prepare(self):
        prepared = original(self)
        name = self._pipeline_node.node_info.id
        announce(f"{name} ..." if prepared.is_execution_needed else f"{name}: from cache")
        return prepared

    Launcher._prepare_execution = prepare
    try:
        yield
    finally:
        Launcher._prepare_execution = original


# What the run leaves -----------------------------------------------------------------------------------------------


class FoundArtifacts(Protocol):
    """The output artifacts of a run, as pipeline.artifacts.Artifacts finds them."""

    def folder(self, node: str, output: str) -> pathlib.Path: ...

    def property(self, node: str, output: str, name: str) -> str | None: ...


def finish(
    config: RunConfig, data: list[dict[str, Any]], code: str, output: pathlib.Path, artifacts: FoundArtifacts
) -> dict[str, Any]:
    """Writes metrics.json, report_data/ and report.html from the artifacts of the newest execution of each node."""
    from pipeline.compare.scored_rows import rows_of, write_scored
    from pipeline.components.log_statistics_gen import RATES
    from pipeline.drift import drift_gate
    from pipeline.evaluate import evaluate
    from pipeline.gates import read_gates
    from pipeline.report import write_report
    from pipeline.statistics import summarise_statistics
    from transforms.payload import payload_files

    examples = artifacts.folder("LogExampleGen", "examples")
    model = artifacts.folder("Trainer", "model") / "Format-Serving"
    baseline = None
    if config.evaluation.baseline:
        folder = artifacts.folder("Trainer.baseline", "model") / "Format-Serving"
        baseline = (config.evaluation.baseline.name, folder)
    announce("Metrics on the test rows")
    test = payload_files(examples / "Split-test")
    evaluation = artifacts.folder("GatedEvaluator", "evaluation")
    workers = config.crew(output / "tfx")
    rows = rows_of(_fingerprint_files(data), config)
    metrics, scored, others = evaluate(evaluation, baseline, test, config.log_spec, config.evaluation, rows, workers)
    if tail := metrics["tail"]:
        announce(f"Tail: {tail['examples']:,} of {metrics['examples']:,} test rows, {' x '.join(tail['columns'])}")
    gates = read_gates(evaluation, config.gates)
    metrics["blessed"] = (artifacts.folder("GatedEvaluator", "blessing") / "BLESSED").exists()
    metrics["drift_breached"] = None
    drift = None
    if config.monitoring.previous or config.monitoring.serving:
        drift = json.loads((artifacts.folder("DriftCheck", "drift") / "drift.json").read_text())
        metrics["drift_breached"] = drift["breached"]
        if config.monitoring.block:
            gates.append(drift_gate(drift))
            metrics["blessed"] = metrics["blessed"] and not drift["breached"]
    pushed = artifacts.property("AtomicPusher", "pushed_model", "pushed_version") if metrics["blessed"] else None
    metrics["model_version"] = pushed
    fresh = output / ".report_data.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    write_scored(fresh / "predictions.parquet", scored, others)
    write_json(fresh / "gates.json", gates)
    if drift:
        write_json(fresh / "drift.json", drift)
    shutil.copy(model / "assets.extra" / "history.json", fresh / "history.json")
    counts = json.loads((examples / "counts.json").read_text())
    statistics = artifacts.folder("LogStatisticsGen", "statistics")
    anomalies = artifacts.folder("ExampleValidator", "anomalies")
    rates = json.loads(str(artifacts.property("LogStatisticsGen", "statistics", RATES)))
    write_json(fresh / "statistics.json", summarise_statistics(statistics, anomalies, counts, config.log_spec, rates))
    (fresh / "config.yaml").write_text(_as_yaml(config))
    lineage = {
        "config_hash": hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:16],
        "code_version": code,
        "data": data,
        "schema": str(artifacts.folder("ImportSchemaGen", "schema")),
        "transform_graph": str(artifacts.folder("LogTransform", "transform_graph")),
        "model": str(artifacts.folder("Trainer", "model")),
        "versions": {name: importlib.metadata.version(name) for name in VERSIONS_SHOWN},
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_json(fresh / "lineage.json", lineage)
    write_json(output / "metrics.json", metrics)
    shutil.rmtree(output / "report_data", ignore_errors=True)
    fresh.rename(output / "report_data")
    write_report(output)
    return metrics


def write_json(path: pathlib.Path, value: Any) -> None:
    def plain(item: Any) -> Any:
        return item.item() if isinstance(item, np.generic) else str(item)

    fresh = path.with_name(path.name + ".new")
    fresh.write_text(json.dumps(value, indent=1, default=plain))
    fresh.replace(path)


def _as_yaml(config: RunConfig) -> str:
    import yaml

    return yaml.safe_dump(config.model_dump(mode="json", exclude_none=True), sort_keys=False)
