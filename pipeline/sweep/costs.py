"""Measures what a row costs to train and to predict, as tables 4 and 7 of BERT4CTR do."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras

from common.progress import announce
from pipeline.config import RunConfig
from pipeline.sweep.plan import Costs
from pipeline.training.data import count_rows, packed_batches
from pipeline.training.learner import Batch, Learner
from pipeline.training.process import other_workers
from pipeline.training.text_encoder import with_encoder
from pipeline.training.train import Task
from pipeline.transformed_log import TransformedLog
from serving.latency.papers import BERT4CTR_REPEATS, bert4ctr

ANNOUNCED = 5  # repeats between two lines of progress

RowCosts = dict[str, dict[str, float] | None]


def row_costs(points: Mapping[str, RunConfig], log: TransformedLog, costs: Costs) -> dict[str, RowCosts]:
    """Measures the milliseconds per row of training and of predicting, by BERT4CTR's method (see papers.bert4ctr).

    The models are untrained, because the time does not depend on the weights. They are measured in turn.

    Args:
        points: The points' configurations by name.
        log: The log that the batches are of.
        costs: The number and the size of the batches.

    Returns:
        By point, `inference` and `training`; `training` is None for a model that another process trains.
    """
    learners = {name: _learners(config, log) for name, config in points.items()}
    test, train = (_batches(files, log, costs) for files in (log.test, log.train))
    inference = _measured("inference", {name: serves.predict for name, (serves, _) in learners.items()}, test, costs)
    steps = {name: trains.fit for name, (_, trains) in learners.items() if trains}
    training = _measured("training", steps, train, costs)
    return {name: {"inference": inference[name], "training": training.get(name)} for name in points}


def _learners(config: RunConfig, log: TransformedLog) -> tuple[Learner, Learner | None]:
    """Returns the learner that predicts, as served, and the one that trains; None where another process trains."""
    model, training = with_encoder(config.model, config.text), config.training
    task = Task(model, training, log.feature_map, tuple(log.train), tuple(log.validation), config.seed)
    here = training.backend == keras.backend.backend() and not other_workers(training.distribution)
    trains = task.learner() if here else None
    if trains and training.precision == "float32":
        return trains, trains
    return task.served_learner(), trains


def _batches(files: list[str], log: TransformedLog, costs: Costs) -> list[Batch]:
    repeats = math.ceil(costs.batches * costs.batch_size / count_rows(files))  # a short log's rows come again
    return list(packed_batches(files * repeats, log.feature_map, costs.batch_size, take=costs.batches))


def _measured(
    what: str, steps: Mapping[str, Callable[[list[Batch]], Any]], batches: list[Batch], costs: Costs
) -> dict[str, dict[str, float]]:
    def tell(done: int) -> None:
        if done % ANNOUNCED == 0:
            announce(f"Costs: {what}, {done} of {BERT4CTR_REPEATS} repeats of {len(steps)} models")

    def one(step: Callable[[list[Batch]], Any]) -> Callable[[Batch], Any]:
        return lambda batch: step([batch])

    return bert4ctr({name: (one(step), batches) for name, step in steps.items()}, costs.batch_size, tell)
