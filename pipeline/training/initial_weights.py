"""The initial weights of a training run: base rate, pretrained vectors, and weights of a parent or of first stages."""

import pathlib
from collections.abc import Callable

from ctrpipe.pipeline.training.base_rate import check_correctable, start_at_base_rate
from ctrpipe.pipeline.training.finite_learner import check_weights
from ctrpipe.pipeline.training.first_stages import (
    check_stages,
    first_stages,
    language_stage,
    stage_folder,
    train_language_stage,
)
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.learner import Learner
from ctrpipe.pipeline.training.process import Report
from ctrpipe.pipeline.training.start_vectors import begin_with_vectors
from ctrpipe.pipeline.training.warm_start import begin_with_parent, unknown_to

# Trains the job of a first stage in its work folder, as `train_here` does.
TrainStage = Callable[[TrainingJob, pathlib.Path, Report | None], TrainResult]


def initialise(
    job: TrainingJob, learner: Learner, work: pathlib.Path, report: Report | None, train_stage: TrainStage
) -> None:
    """Sets the initial weights of an untrained model.

    The output biases are set to the base rate, and embeddings to pretrained vectors. Then weights are copied from the
    parent, or without a parent from the first stages. A value that the parent does not know keeps its vector.

    Args:
        job: The training job.
        learner: The learner of the untrained model.
        work: Folder of the training.
        report: Called with the metrics of each evaluation of a first stage.
        train_stage: Trains a first stage.
    """
    start_at_base_rate(job, learner.network)
    check_correctable(job, learner.network)
    if job.start_vectors:
        begin_with_vectors(job, learner)
    if job.start:
        assert job.training.warm_start is not None
        begin_with_parent(learner, pathlib.Path(job.start), job.training.warm_start, work)
        if job.start_vectors:
            begin_with_vectors(job, learner, unknown_to(pathlib.Path(job.start)))
        check_weights(job.model.name, learner, "in the parent", "name another training.warm_start.parent")
    else:
        _train_first_stages(job, learner, work, report, train_stage)


def _train_first_stages(
    job: TrainingJob, learner: Learner, work: pathlib.Path, report: Report | None, train_stage: TrainStage
) -> None:
    """Trains the stages that come before the model, and copies their weights into the learner's network.

    A masked language model first trains a text model's encoder, if it is configured. Then each model of `first_stages`
    is trained after its own first stages, and the network takes its weights.

    Raises:
        InputError: the weights of a stage would not fit. This is checked before any training.
    """
    network = learner.network
    check_stages(job, network)
    if language := language_stage(job, network):
        if learner.is_chief:
            train_language_stage(job, language, network.encoder, work, report)
        learner.load_weights(learner.from_chief(learner.weights()))
    for first in first_stages(job, network):
        result = train_stage(first, stage_folder(first, work), report)
        network.take_weights(result.model)
