"""`ctrpipe run`: runs the pipeline on this machine.

Modules that import TensorFlow or TFX are imported inside functions: the import takes 6 s, and a mistake in the log's
path or in a key is reported before. After the import, this process is forked for the workers. It must not be forked
after TensorFlow has listed its devices.
"""

import contextlib
import pathlib
import sys
import threading
from collections.abc import Iterator
from typing import Any

from ctrpipe.common.address_space import RUN_GIB, require_address_space
from ctrpipe.common.code_version import code_version
from ctrpipe.common.errors import InputError, NotFiniteError, one_line
from ctrpipe.common.extras import require
from ctrpipe.common.libraries import import_tensorflow, importing_tfx, load_tensorflow
from ctrpipe.common.memory import share_heaps
from ctrpipe.common.output_folder import check_output, one_run_at_a_time
from ctrpipe.common.phases import begin_phases, seconds_by_phase, start_phase
from ctrpipe.common.processes import cores, fork_workers
from ctrpipe.common.progress import announce
from ctrpipe.common.stores import has_client, in_parallel
from ctrpipe.models.base.registry import check_hyperparameters, derives_from, is_boosted, known_options, model_class
from ctrpipe.pipeline.config import Model, RunConfig, UnknownKeyError, nearest_key
from ctrpipe.pipeline.run.finished import check_hooks
from ctrpipe.pipeline.run.inputs import RunInputs, find_monitored, run_inputs
from ctrpipe.pipeline.run.next_steps import write_request
from ctrpipe.pipeline.run.results import finish
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.transforms.log.dated_names import dated_names
from ctrpipe.transforms.log.described_files import describe_files, same_contents
from ctrpipe.transforms.log.files import RANGE_BYTES, find_files, size_of
from ctrpipe.transforms.log.footers import footers
from ctrpipe.transforms.log.held_objects import held_objects
from ctrpipe.transforms.log.outliers import place_of_number

WORKER_MODULES = "ctrpipe.pipeline.run.worker_modules"
SMALL_LOG_BYTES = 2 * RANGE_BYTES  # at most: needs no workers


def run(config: RunConfig, files: list[str], output: pathlib.Path) -> dict[str, Any]:
    """Runs the pipeline.

    Returns:
        The contents of metrics.json. `blessed` is true if the model was pushed.

    Raises:
        InputError: the data, the configuration or the output folder cannot be used.
    """
    begin_phases("checks")
    given = config
    config, paths = config.placed(files)
    with held_objects(paths):
        return _run(given, config, paths, output)


def _run(given: RunConfig, config: RunConfig, paths: list[str], output: pathlib.Path) -> dict[str, Any]:
    for line in given.items_found(paths).told:
        announce(line)
    forks = prepare_process(config, paths)
    start_phase("loading TensorFlow")
    import_tensorflow()
    start_phase("checks")
    _check_model(config)
    check_hooks(config.hooks)
    check_output(output)
    announce(f"Run {config.name}: {len(paths):,} file{'s' if len(paths) > 1 else ''}, output in {output}")
    monitored = find_monitored(config.monitoring)
    with one_run_at_a_time(output):
        return _run_pipeline(config, paths, monitored, output.resolve(), forks)


def prepare_process(config: RunConfig, files: list[str]) -> int:
    """Prepares this process for a run, before it imports TensorFlow.

    Limits the heaps of the threads that it starts.

    Returns:
        The number of workers to fork from this process after the imports. 0 for a log of at most SMALL_LOG_BYTES, on
        one core, with Beam, and where TensorFlow is loaded, as in a notebook: each pool then starts its own processes.

    Raises:
        InputError: the system allows this process too little address space.
    """
    require_address_space("a run", RUN_GIB)
    share_heaps(cores())
    workers = config.workers_for()
    processes = workers.most or cores()
    if workers.beam_args or min(processes, cores()) == 1 or sum(in_parallel(size_of, files)) <= SMALL_LOG_BYTES:
        return 0
    return 0 if "tensorflow" in sys.modules else processes


def _fork_if_possible(processes: int) -> None:
    """Forks the workers, after the imports and before TensorFlow lists its devices.

    A process with threads, or with a client of a store, is not forked. Each pool then starts its own processes.
    """
    if processes and threading.active_count() == 1 and not has_client():
        fork_workers(WORKER_MODULES, processes)


def _run_pipeline(
    config: RunConfig,
    files: list[str],
    monitored: dict[str, Any],
    output: pathlib.Path,
    forks: int,
) -> dict[str, Any]:
    announce("Loading TFX")
    start_phase("loading TFX")
    with importing_tfx():
        # Lazy, see the module's docstring.
        from ctrpipe.pipeline.run.local_runner import run_pipeline
        from ctrpipe.pipeline.run.parent import complete_with_parent

    start_phase("reading the log")
    data = describe_files(files)
    _fork_if_possible(forks)
    start_phase("loading TensorFlow")
    load_tensorflow()
    in_order = dated_names(files) if config.data.split.by == "order" else ()
    for line in (*same_contents(data), *footers(config.data, files), *in_order):
        announce(line)
    start_phase("checks")
    _build_models(config)
    inputs = complete_with_parent(config, run_inputs(config, files, data, output), monitored)
    with placing_the_number(config, files):
        artifacts = run_pipeline(config, inputs)
    start_phase("report")
    metrics = finish(config, data, code_version(), output, artifacts, seconds_by_phase())
    write_request(config, files, output)
    return metrics


@contextlib.contextmanager
def placing_the_number(config: RunConfig, files: list[str]) -> Iterator[None]:
    """Adds the file and line of the log's number to a NotFiniteError that the block raises."""
    try:
        yield
    except NotFiniteError as error:
        place = place_of_number(config.log_spec, files, error.column, error.number) if error.column else ""
        raise error.with_(place=place) from error


def resolve(
    config: RunConfig, files: list[str], output: pathlib.Path, work: pathlib.Path | None = None
) -> tuple[RunInputs, list[dict[str, Any]]]:
    """Runs the checks of `run` for a graph that another program executes, such as Kubeflow.

    Args:
        config: The run's configuration, as `RunConfig.placed` returns it.
        files: The log's files and globs.
        output: The run's folder.
        work: The folder that the steps work in. None for the run's.

    Returns:
        The graph's RunInputs, and the log's files as `finish` takes them.

    Raises:
        InputError: as in `run`.
    """
    paths = find_files(files)
    load_tensorflow()
    _check_model(config)
    _build_models(config)
    check_output(output)
    with held_objects(paths):
        data = describe_files(paths)
    inputs = run_inputs(config, paths, data, output.resolve(), work.resolve() if work else None)
    from ctrpipe.pipeline.run.parent import complete_with_parent  # lazy, see the module's docstring

    return complete_with_parent(config, inputs, find_monitored(config.monitoring)), data


def transform(config: RunConfig, files: list[str], output: pathlib.Path) -> TransformedLog:
    """Runs the pipeline up to Transform. Unchanged nodes are cache hits. The caller holds the folder's lock.

    Raises:
        InputError: the data or the configuration cannot be used, or the configuration has a warm start.
    """
    if config.training.warm_start:
        raise InputError(
            "training.warm_start: models to compare begin with random weights; add --set training.warm_start=null"
        )
    config, paths = config.placed(files)
    with held_objects(paths):
        forks = prepare_process(config, paths)
        import_tensorflow()
        announce("Loading TFX")
        with importing_tfx():
            # Lazy, see the module's docstring.
            from ctrpipe.pipeline.run.local_runner import run_data_pipeline
        data = describe_files(paths)
        _fork_if_possible(forks)
        load_tensorflow()
        return run_data_pipeline(config, run_inputs(config, paths, data, output.resolve()))


def check_options(config: RunConfig) -> None:
    """Checks the models' names, options and number of labels. Raises InputError for a mistake."""
    for key, model in (("model", config.model), ("evaluation.baseline", config.evaluation.baseline)):
        if model:
            try:
                check_hyperparameters(model.name, **model.hyperparameters)
                if model_class(model.name).needs_tasks:
                    from ctrpipe.models.base.ctr_model import (
                        require_several_tasks,  # lazy: Keras takes 4 s, and the model has imported it
                    )

                    require_several_tasks(model.name, tuple(config.data.labels))
                if model_class(model.name).needs_items and (both := config.log_spec.crosses_sides):
                    raise InputError(
                        f"derived.{both}: {key} {model.name} computes the item's vector without the user, and this "
                        "column is made of both; take columns of one side, or another model"
                    )
            except (ValueError, TypeError) as error:
                raise _option_mistake(key, model, error) from error
    if config.training.optimizer == "lbfgs" and not derives_from(config.model.name, "lr"):
        raise InputError(
            f"training.optimizer: lbfgs trains only linear models, such as lr; use adam for {config.model.name}"
        )
    if config.serving.explain and is_boosted(config.model.name):
        raise InputError(
            f"serving.explain: boosted trees have no gradients; set it false for the model {config.model.name}"
        )
    key = config.training.fake_negatives or ("end_at_base_rate" if config.training.end_at_base_rate else "")
    if key and is_boosted(config.model.name):
        raise InputError(
            f"training.{key}: boosted trees do not support it; set it false for the model {config.model.name}"
        )
    if config.training.warm_start and derives_from(config.model.name, "lightgbm"):
        raise InputError("training.warm_start: the trees of lightgbm start from no other trees; remove it")


def _option_mistake(key: str, model: Model, error: Exception) -> InputError:
    """Returns the error for a model's wrong options. For an unknown option, it names the most similar key."""
    text = f"{key}: {one_line(error)}"
    with contextlib.suppress(ValueError):  # there is no such model
        options = known_options(model.name)
        if unknown := [name for name in model.hyperparameters if name not in options]:
            nearest = nearest_key(f"model.{unknown[0]}", model.name, options) or ""
            return UnknownKeyError(text, f"{key}.{unknown[0]}", nearest.replace("model.", f"{key}.", 1) or None)
    return InputError(text)


def _build_models(config: RunConfig) -> None:
    """Raises InputError if a model cannot be built on the columns, before the log is transformed."""
    from ctrpipe.pipeline.training.buildable import impossible_models  # lazy, see the module's docstring

    if reasons := impossible_models(config):
        raise InputError(reasons[0])


def _check_model(config: RunConfig) -> None:
    if config.training.backend == "jax":
        require("jax", "training.backend: jax", "set tensorflow or auto")
    if config.text:
        require("text", "features: text")
    check_options(config)
    for model in filter(None, (config.model, config.evaluation.baseline)):
        with_encoder(model, config.text)
    if config.text and config.text.tokens == "checkpoint":
        from ctrpipe.transforms.text.tokenize import read_tokenizer  # lazy, see the module's docstring

        read_tokenizer(config.text.encoder)
