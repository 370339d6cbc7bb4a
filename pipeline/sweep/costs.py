"""Measures the time per row of training and prediction, as in tables 4 and 7 of BERT4CTR."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np

from ctrpipe.common.progress import announce
from ctrpipe.models.text.cascading import CascadingNNGBDT
from ctrpipe.pipeline.config import FirstStage, RunConfig
from ctrpipe.pipeline.run.transformed_log import TransformedLog
from ctrpipe.pipeline.sweep.plan import Costs
from ctrpipe.pipeline.training import masked_language_model
from ctrpipe.pipeline.training.auto_settings import settled
from ctrpipe.pipeline.training.boosting import learn_trees
from ctrpipe.pipeline.training.data import count_rows, packed_batches
from ctrpipe.pipeline.training.first_stages import first_stages, language_stage
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import Batch, Learner, compares_rows
from ctrpipe.pipeline.training.process import other_workers
from ctrpipe.pipeline.training.text_encoder import with_encoder
from ctrpipe.serving.latency.papers import BERT4CTR_REPEATS, bert4ctr_repeats, bert4ctr_statistics

ANNOUNCED = 5  # repeats between two progress messages
TREES = "trees"  # name of the boosted trees' part of the training cost

Repeat = Callable[[], Any]
RowCosts = dict[str, Any]


def row_costs(points: Mapping[str, RunConfig], log: TransformedLog, costs: Costs) -> dict[str, RowCosts]:
    """Measures the milliseconds per row of training and prediction, by BERT4CTR's method (see papers.bert4ctr).

    The cost of a training run is the sum over its stages, each with one pass over the rows: first stages, the model
    itself, and its boosted trees (BERT4CTR, section 4.1.4). The sum is taken per repeat. The models are untrained,
    because the time does not depend on the weights. They are measured in turn. A stage that several points share is
    measured only once.

    Args:
        points: The points' configurations by name.
        log: The log that the batches come from.
        costs: The number and the size of the batches.

    Returns:
        For each point, average, median, p90 and p95 as `inference` and `training`, and by stage as `training_parts`.
        `training` and `training_parts` are None for a model that another process trains.
    """
    learners = {name: _learners(config, log) for name, config in points.items()}
    grouped = any(compares_rows(config.training, log.feature_map) for config in points.values())
    test, train = (_batches(files, log, costs, grouped) for files in (log.test, log.train))
    inference = _measured(
        "inference", {name: _each(serves.predict, test) for name, (serves, _, _) in learners.items()}, test
    )
    trainings = _Trainings(train)
    parts = {name: trainings.add(job, trains) for name, (_, trains, job) in learners.items() if trains}
    ms = _measured("training", trainings.repeats, train)
    row_costs: dict[str, RowCosts] = {}
    for name in points:
        of_point = {stage: ms[key] for stage, key in parts[name].items()} if name in parts else None
        row_costs[name] = {
            "inference": bert4ctr_statistics(inference[name]),
            "training": bert4ctr_statistics(np.sum(list(of_point.values()), axis=0)) if of_point else None,
            "training_parts": {key: bert4ctr_statistics(each) for key, each in of_point.items()} if of_point else None,
        }
    return row_costs


def _learners(config: RunConfig, log: TransformedLog) -> tuple[Learner, Learner | None, TrainingJob]:
    """Returns the served learner, the learner that trains in this process (or None), and the job."""
    model = with_encoder(config.model, config.text)
    training = settled(model, config.training, count_rows(log.train))
    job = TrainingJob(model, training, log.feature_map, log.train, log.validation, config.seed)
    here = training.backend == keras.backend.backend() and not other_workers(training.distribution, training.backend)
    trains = job.learner() if here else None
    if trains and training.precision == "float32":
        return trains, trains, job
    return job.served_learner(), trains, job


class _Trainings:
    """One repeat of each stage of all training jobs. Jobs with the same stage share its key.

    Args:
        batches: The batches of a repeat.
    """

    def __init__(self, batches: list[Batch]):
        self.repeats: dict[str, Repeat] = {}
        self._batches = batches
        self._keys: dict[str, dict[str, str]] = {}  # by job, the result of `add`

    def add(self, job: TrainingJob, learner: Learner | None = None) -> dict[str, str]:
        """Adds the stages of a job, and returns their keys by stage name, in the order of training.

        Args:
            job: The training job.
            learner: The job's learner. None to create one if the stage is not yet known.
        """
        of_job = job.to_json()
        if of_job not in self._keys:
            self._keys[of_job] = self._added(job, learner or job.learner(), of_job)
        return self._keys[of_job]

    def _added(self, job: TrainingJob, learner: Learner, of_job: str) -> dict[str, str]:
        network = learner.network
        own: dict[str, Repeat] = {job.model.name: _each(learner.fit, self._batches)}
        if isinstance(network, CascadingNNGBDT):
            own[TREES] = lambda: learn_trees(network, self._batches, None, network.trees.trees, job.seed)
        language = language_stage(job, network)
        first: dict[str, Repeat] = {}
        if language:
            first[masked_language_model.NAME] = self._language(job, network.encoder, language)
        self.repeats |= {f"{stage} {of_job}": repeat for stage, repeat in (first | own).items()}
        before = {stage: f"{stage} {of_job}" for stage in first}
        for each in first_stages(job, network):
            before |= self.add(each)
        return before | {stage: f"{stage} {of_job}" for stage in own}

    def _language(self, job: TrainingJob, encoder: Any, stage: FirstStage) -> Repeat:
        text, training, rate = job.feature_map.text, stage.applied_to(job.training), stage.mask_rate
        assert text is not None  # the network has an encoder
        model = masked_language_model.compiled_model(encoder, self._batches[0], text, training, rate, job.seed)
        random = np.random.default_rng(job.seed)

        def repeat() -> None:
            for batch in self._batches:
                masked_language_model.train_batch(model, batch, text, rate, random)

        return repeat


def _each(step: Callable[[list[Batch]], Any], batches: list[Batch]) -> Repeat:
    """Returns a function that calls a step on each batch."""

    def repeat() -> None:
        for batch in batches:
            step([batch])

    return repeat


def _batches(files: list[str], log: TransformedLog, costs: Costs, grouped: bool) -> list[Batch]:
    repeats = math.ceil(costs.batches * costs.batch_size / count_rows(files))  # rows of a short log repeat
    batches = packed_batches(files * repeats, log.feature_map, costs.batch_size, take=costs.batches, grouped=grouped)
    return list(batches)


def _measured(what: str, repeats: Mapping[str, Repeat], batches: list[Batch]) -> dict[str, np.ndarray]:
    """Returns the milliseconds per row of each repeat, (repeats,), by the names of `repeats`."""
    rows = sum(len(labels) for _, labels in batches)

    def tell(done: int) -> None:
        if done % ANNOUNCED == 0:
            announce(f"Costs: {what}, {done} of {BERT4CTR_REPEATS} repeats of {len(repeats)} models")

    return bert4ctr_repeats({name: (repeat, rows) for name, repeat in repeats.items()}, tell)
