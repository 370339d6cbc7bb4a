"""`ctrpipe run`: the pipeline on this machine."""

import contextlib
import os
import pathlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from common.errors import InputError, one_line
from common.libraries import importing, load_tensorflow, tfx_does_without
from common.processes import cores, preload
from common.progress import announce
from pipeline.code_version import code_version
from pipeline.config import RunConfig
from pipeline.fingerprints import describe_file, described
from pipeline.results import finish
from pipeline.run_folder import METADATA, check_output, one_run_at_a_time
from pipeline.run_inputs import RunInputs, absolute, complete, find_monitored, run_inputs
from pipeline.transformed_log import TransformedLog
from transforms.log.read_ahead import reading_ahead
from transforms.log.readers import RANGE_BYTES, find_files


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
        monitored = find_monitored(config.monitoring)
        with one_run_at_a_time(output):
            return _run_pipeline(config, found, monitored, output.resolve())


@contextlib.contextmanager
def working_ahead(config: RunConfig, files: list[str], output: pathlib.Path) -> Iterator[None]:
    """Has the log read, and lets processes get ready, while this one loads its libraries, where that pays.

    Only a folder's first run is sure to read the log; in another, the cache may have what it makes of it.
    """
    workers = config.workers_for()
    processes = min(workers.most or cores(), cores())
    if workers.beam_args or processes == 1 or sum(map(os.path.getsize, files)) <= RANGE_BYTES:
        yield
        return
    # This process and the one that gets ready take a core each.
    readers = min(processes, cores() - 2)
    with contextlib.ExitStack() as stack:
        is_single = "tensorflow" not in sys.modules and threading.active_count() == 1  # so that it may be copied
        if readers > 0 and is_single and not (output / METADATA).exists():
            seed, near = config.data.split.seed(config.seed), (output / METADATA).parent
            with contextlib.suppress(OSError):  # what is wrong with the folder is said in time
                stack.enter_context(reading_ahead(config.log_spec, absolute(files), seed, near, readers))
        preload("pipeline.worker_modules")
        yield


def _run_pipeline(
    config: RunConfig, files: list[str], monitored: dict[str, Any], output: pathlib.Path
) -> dict[str, Any]:
    announce("Loading TFX")
    with importing(*tfx_does_without(config.beam_args)), described(files) as description:
        from pipeline.artifacts import Artifacts
        from pipeline.graph import create_pipeline
        from pipeline.local_runner import run_pipeline

    data = description.result()
    inputs = complete(config, run_inputs(config, files, data, output), monitored)
    run_pipeline(create_pipeline(config, inputs))
    artifacts = Artifacts(output / METADATA, config.name)
    return finish(config, data, code_version(), output, artifacts)


def resolve(config: RunConfig, files: list[str], output: pathlib.Path) -> tuple[RunInputs, list[dict[str, Any]]]:
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
    data = [describe_file(path) for path in found]
    inputs = run_inputs(config, found, data, output.resolve())
    return complete(config, inputs, find_monitored(config.monitoring)), data


def transform(config: RunConfig, files: list[str], output: pathlib.Path) -> TransformedLog:
    """Runs the pipeline up to Transform, from the cache where nothing has changed. The caller holds the folder's lock.

    Raises:
        InputError: the data or the configuration cannot be used.
    """
    found = find_files(files)
    with working_ahead(config, found, output):
        load_tensorflow()
        announce("Loading TFX")
        with importing(*tfx_does_without(config.beam_args)), described(found) as description:
            import tensorflow_transform as tft

            from pipeline.artifacts import Artifacts
            from pipeline.graph import create_data_pipeline
            from pipeline.local_runner import run_pipeline
            from transforms.features.preprocessing import feature_map

        inputs = run_inputs(config, found, description.result(), output.resolve())
        run_pipeline(create_data_pipeline(config, inputs))
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
                raise InputError(f"{key}: {one_line(error)}") from error


def _check_model(config: RunConfig) -> None:
    from pipeline.training.text_encoder import with_encoder

    check_options(config)
    for model in filter(None, (config.model, config.evaluation.baseline)):
        with_encoder(model, config.text)
    if config.text and config.text.tokens == "checkpoint":
        from transforms.text.tokenize import read_tokenizer

        read_tokenizer(config.text.encoder)
