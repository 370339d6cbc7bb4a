"""Trains a model, and measures its test metrics, its size and its speed."""

import dataclasses
import gc
import math
import pathlib
import statistics
import time
from typing import Any

import keras

from ctrpipe.common.estimates import gauc_estimate
from ctrpipe.common.finite import check_predictions
from ctrpipe.common.metrics import summarise
from ctrpipe.models.base.saved import save_model
from ctrpipe.pipeline.config import RunConfig, Training
from ctrpipe.pipeline.evaluation.scored_rows import ScoredRows
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.training.checkpoint import saved_seconds
from ctrpipe.pipeline.training.data import groups_of, packed_batches, prediction_rows, weights_of
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.learner import Learner, compares_rows
from ctrpipe.pipeline.training.network import count_parameters
from ctrpipe.pipeline.training.progress import measured
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.pipeline.training.train import train
from ctrpipe.serving.latency.papers import HIFORMER_BATCHES, HIFORMER_ROWS, batch_seconds

SPEED_STEPS, SPEED_REPEATS = 10, 3


def train_and_measure(
    config: RunConfig,
    log: TransformedLog,
    latency: bool,
    test: ScoredRows,
    work: pathlib.Path,
    key: str,
    keep: pathlib.Path | None = None,
) -> tuple[dict[str, Any], ScoredRows]:
    """Trains a model and measures it.

    Args:
        config: The point's configuration, with the seed.
        log: The transformed log.
        latency: Whether to measure the prediction time.
        test: The test rows, without predictions.
        work: Folder of unfinished training runs. A first stage that several points share is trained once and kept
            there.
        key: Name of the training run in `work`. Training resumes from a checkpoint of this name.
        keep: Folder to save the model in, for `ctrpipe.load`. None to save no model.

    Returns:
        The result, JSON-serializable, with the `validation` metrics of the best weights and the `seconds` of the
        training, including those before its checkpoint; and the test rows with the
        model's predictions.
    """
    started = time.monotonic() - saved_seconds(work / key)
    model = with_encoder(config.model, config.text)
    rows = log.feature_map, log.train, log.validation
    job = TrainingJob(
        model,
        config.training,
        *rows,
        config.seed,
        str(work / "stages"),
        group_weight=config.evaluation.group_weight,
        start_vectors=log.start_vectors,
    )
    trained = train(job, work / key)
    seconds = time.monotonic() - started
    if keep:
        save_model(keep, model.name, trained.model, trained.weights_file)
    history = trained.history
    best = history["evaluations"][history["best"]]
    on_test, scored = measure(trained, config.training, log, latency, test)
    result = {
        "model": config.model.model_dump(mode="json"),
        "training": config.training.model_dump(mode="json"),
        "seed": config.seed,
        "validation": {
            name: measured(name, best) for name in dict.fromkeys(("auc", "log_loss", config.training.monitor))
        },
        **on_test,
        "evaluations": history["evaluations"],
        "examples_trained": best["examples"],
        "stopped": history["stopped"],
        "seconds": round(seconds, 3),
    }
    del trained
    keras.utils.clear_session()
    gc.collect()
    return result, scored


def measure(
    trained: TrainResult,
    training: Training,
    log: TransformedLog,
    latency: bool,
    test: ScoredRows,
) -> tuple[dict[str, Any], ScoredRows]:
    """Measures a trained model: test metrics of every task, number of parameters, speeds.

    The training speed is measured by further training steps. The weights then differ from those of the result.

    Args:
        trained: The training result. Its learner cannot be used afterwards.
        training: The training settings.
        log: The transformed log.
        latency: Whether to measure the prediction time.
        test: The test rows, without labels and predictions.

    Returns:
        The measurements, and `test` with labels and predictions. `normalised_log_loss` is the log loss divided by the
        log loss of the base rate. `train_samples_per_second` is None if another process trained the model.
    """
    learner = trained.learner
    trains = learner if trained.trained_here else None
    labels, probabilities = learner.predict(packed_batches(log.test, log.feature_map, prediction_rows(log.feature_map)))
    check_predictions(trained.job.model.name, probabilities, "test")
    names = log.feature_map.tasks
    by_task = [{task: values[:, index] for index, task in enumerate(names)} for values in (labels, probabilities)]
    scored = dataclasses.replace(test, labels=by_task[0], probabilities=by_task[1], weights=weights_of(log.test))
    scored = dataclasses.replace(scored, groups=groups_of(log.test))
    weights = scored.weights
    number_tasks = tuple(number.task for number in log.feature_map.number_tasks)
    scored = dataclasses.replace(scored, numbers=number_tasks)
    tasks = {
        task: scored.summary(task)
        if task in number_tasks
        else _test_metrics(scored.labels[task], scored.probabilities[task], weights)
        for task in names
    }
    if scored.groups is not None:
        for task, numbers in tasks.items():
            if task in number_tasks:
                continue
            known = scored.labelled(task)
            of_rows = known.labels[task], known.probabilities[task], known.weights
            grouped = None if known.groups is None else gauc_estimate(known.groups, *of_rows, known.group_weight)
            numbers["gauc"] = None if grouped is None else grouped.value
    parameters, tables = count_parameters(learner.network)
    tail = None
    if test.tail is not None:
        own = None if weights is None else weights[test.tail]
        tail = _test_metrics(scored.labels[names[0]][test.tail], scored.probabilities[names[0]][test.tail], own)
    on_test = {
        "test": tasks[names[0]],
        "tail": tail,
        "tasks": tasks,
        "parameters": parameters,
        "parameters_without_embeddings": parameters - tables,
        "latency_ms": 1000 * latency_seconds(learner, log, len(labels)) if latency else None,
        "train_samples_per_second": training_speed(trains, training, log) if trains else None,
    }
    return on_test, scored


def _test_metrics(labels: Any, probabilities: Any, weights: Any) -> dict[str, Any]:
    numbers: dict[str, Any] = summarise(labels, probabilities, weights)
    numbers["normalised_log_loss"] = None if numbers["rig"] is None else 1 - numbers["rig"]
    return numbers


def latency_seconds(learner: Learner, log: TransformedLog, test_rows: int) -> float:
    """Returns the median prediction time of 20 batches of 1,024 test rows: Hiformer's method."""
    repeats = math.ceil(HIFORMER_BATCHES * HIFORMER_ROWS / test_rows)  # rows of a short log repeat
    batches = list(packed_batches(log.test * repeats, log.feature_map, HIFORMER_ROWS, take=HIFORMER_BATCHES))
    seconds = batch_seconds({"model": (lambda batch: learner.predict([batch]), batches)})
    return statistics.median(seconds["model"])


def training_speed(learner: Learner, training: Training, log: TransformedLog) -> float:
    """Returns the training speed in rows per second, on batches in memory: the median of 3 repeats of 10 steps."""
    grouped = compares_rows(training, log.feature_map)
    batches = list(packed_batches(log.train, log.feature_map, training.batch_size, take=SPEED_STEPS, grouped=grouped))
    rows = sum(len(labels) for _, labels in batches)
    learner.fit(batches)
    speeds = []
    for _ in range(SPEED_REPEATS):
        started = time.perf_counter()
        learner.fit(batches)
        speeds.append(rows / (time.perf_counter() - started))
    return statistics.median(speeds)
