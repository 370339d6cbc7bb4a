"""Trains a model, and measures what it is worth: metrics on the test rows, size, speed."""

import dataclasses
import gc
import math
import pathlib
import statistics
import time
from typing import Any

import keras

from models.metrics import summarise
from pipeline.config import RunConfig, Training
from pipeline.evaluation.scored_rows import ScoredRows
from pipeline.sweep.plan import Plan
from pipeline.training.data import packed_batches, prediction_rows
from pipeline.training.learner import Learner
from pipeline.training.network import count_parameters
from pipeline.training.text_encoder import with_encoder
from pipeline.training.train import TrainResult, train
from pipeline.transformed_log import TransformedLog
from serving.latency.papers import HIFORMER_BATCHES, HIFORMER_ROWS, batch_seconds

SPEED_STEPS, SPEED_REPEATS = 10, 3


def train_and_measure(
    config: RunConfig, log: TransformedLog, plan: Plan, test: ScoredRows, work: pathlib.Path, key: str
) -> tuple[dict[str, Any], ScoredRows]:
    """Trains (or goes on from the checkpoint in `work`/`key`), then measures; and what it answered to the test rows.
    `validation` is of the kept weights. First stages that several points have are trained once."""
    started = time.monotonic()
    model = with_encoder(config.model, config.text)
    files = log.feature_map, log.train, log.validation
    trained = train(model, config.training, *files, config.seed, work / key, shared_stages=work / "stages")
    seconds = time.monotonic() - started
    history = trained.history
    best = history["evaluations"][history["best"]]
    measured, scored = measure(trained, config.training, log, plan.latency, test)
    result = {
        "model": config.model.model_dump(mode="json"),
        "training": config.training.model_dump(mode="json"),
        "seed": config.seed,
        "validation": {"auc": best["validation_auc"], "log_loss": best["validation_log_loss"]},
        **measured,
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
    """Metrics per task on the test rows, parameters and speeds; and what it answered to the test rows, which are
    `test` but for labels and answers.

    It trains a few more steps at its end, so the learner is of no more use. `normalised_log_loss` is the log loss as a
    share of the base rate's; `train_samples_per_second` is None where the learner is not the one that trained.
    """
    learner = trained.learner
    trains = learner if trained.trained_here else None
    labels, probabilities = learner.predict(packed_batches(log.test, log.feature_map, prediction_rows(log.feature_map)))
    names = log.feature_map.tasks
    by_task = [{task: values[:, index] for index, task in enumerate(names)} for values in (labels, probabilities)]
    scored = dataclasses.replace(test, labels=by_task[0], probabilities=by_task[1])
    tasks = {task: _test_metrics(scored.labels[task], scored.probabilities[task]) for task in names}
    parameters, tables = count_parameters(learner.network)
    tail = None
    if test.tail is not None:
        tail = _test_metrics(scored.labels[names[0]][test.tail], scored.probabilities[names[0]][test.tail])
    measured = {
        "test": tasks[names[0]],
        "tail": tail,
        "tasks": tasks,
        "parameters": parameters,
        "parameters_without_embeddings": parameters - tables,
        "latency_ms": 1000 * latency_seconds(learner, log, len(labels)) if latency else None,
        "train_samples_per_second": training_speed(trains, training, log) if trains else None,
    }
    return measured, scored


def _test_metrics(labels: Any, probabilities: Any) -> dict[str, Any]:
    numbers: dict[str, Any] = summarise(labels, probabilities)
    numbers["normalised_log_loss"] = None if numbers["rig"] is None else 1 - numbers["rig"]
    return numbers


def latency_seconds(learner: Learner, log: TransformedLog, test_rows: int) -> float:
    """Hiformer's method on the test rows: the median time of a prediction over 20 batches of 1024."""
    repeats = math.ceil(HIFORMER_BATCHES * HIFORMER_ROWS / test_rows)  # a short log's rows come again
    batches = list(packed_batches(log.test * repeats, log.feature_map, HIFORMER_ROWS, take=HIFORMER_BATCHES))
    seconds = batch_seconds({"model": (lambda batch: learner.predict([batch]), batches)})
    return statistics.median(seconds["model"])


def training_speed(learner: Learner, training: Training, log: TransformedLog) -> float:
    """Returns rows per second of the training step (forward, backward, update) on batches in memory: a median of 3."""
    batches = list(packed_batches(log.train, log.feature_map, training.batch_size, take=SPEED_STEPS))
    rows = sum(len(labels) for _, labels in batches)
    learner.fit(batches)
    speeds = []
    for _ in range(SPEED_REPEATS):
        started = time.perf_counter()
        learner.fit(batches)
        speeds.append(rows / (time.perf_counter() - started))
    return statistics.median(speeds)
