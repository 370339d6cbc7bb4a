"""The stages of a training in this process, from random weights to the served model's."""

import pathlib

from ctrpipe.common.finite import SMALLER_STEPS, check_figures
from ctrpipe.models.text.cascading import CascadingNNGBDT
from ctrpipe.pipeline.training.averaging import WeightAverage
from ctrpipe.pipeline.training.base_rate import check_correctable, start_at_base_rate
from ctrpipe.pipeline.training.boosting import load_lightgbm, train_trees
from ctrpipe.pipeline.training.checkpoint import REFIT, Checkpoint, read_state, write_state
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
from ctrpipe.pipeline.training.loop import train_again_on_all_rows, train_and_evaluate
from ctrpipe.pipeline.training.process import Report
from ctrpipe.pipeline.training.progress import Progress
from ctrpipe.pipeline.training.tensorboard_log import TensorBoardLog
from ctrpipe.pipeline.training.warm_start import begin_with_parent


def train_here(job: TrainingJob, work: pathlib.Path, report: Report | None) -> TrainResult:
    """Trains a job on this process's Keras backend, with all workers that this process is connected to.

    Args:
        job: The training job. Its settings name a backend and a precision, not `auto`.
        work: Folder of this training's checkpoint and TensorBoard logs.
        report: Called in the chief's process with the metrics of each evaluation.

    Raises:
        InputError: see `train`.
    """
    training = job.training

    # 1. Build the network, and resume from the checkpoint if there is one.
    learner = job.learner()
    boosts = isinstance(learner.network, CascadingNNGBDT)
    if boosts:
        load_lightgbm()  # fails here, not after hours of training the network
    if not learner.is_chief:
        report = None
    average = WeightAverage(training.averaged_evaluations)
    checkpoint = Checkpoint(work, learner, average)
    progress = checkpoint.restore()

    # 2. Without a checkpoint, give the weights their initial values.
    if progress is None:
        progress = Progress(learning_rate=training.learning_rate)
        _initialise(job, learner, work, report)

    # 3. Train and evaluate in turn, and save each evaluation.
    log = TensorBoardLog(work / "tensorboard") if learner.is_chief else None
    for numbers in train_and_evaluate(job, learner, average, progress):
        checkpoint.save(progress)
        if log:
            log.write(numbers)
        if report:
            report({"model": job.model.name, **numbers})

    # 4. Return to the best weights, or train again from the start on all rows.
    if training.refit:
        learner = job.learner()
        _initialise(job, learner, work, report)
        train_again_on_all_rows(job, learner, progress)
        if learner.is_chief:
            write_state(work / REFIT, learner)
    else:
        checkpoint.restore_best()

    check_weights(job.model.name, learner, "after the training")

    # 5. Compute in float32, like the served model.
    if training.precision != "float32":
        learner = _in_float32(job, learner)

    # 6. Train the boosted trees on the residual error of the network.
    if boosts and learner.is_chief:
        with_trees = train_trees(job, learner.network)
        check_figures(f"{job.model.name} with its trees", with_trees, SMALLER_STEPS, "validation")
        if progress.best is not None and not training.refit:
            progress.evaluations[progress.best] |= with_trees

    written = None if training.refit or boosts else checkpoint.best
    state = read_state(work, training.refit)
    return TrainResult(job, learner, progress, training.precision == "float32", written, state)


def _initialise(job: TrainingJob, learner: Learner, work: pathlib.Path, report: Report | None) -> None:
    """Sets the output biases of an untrained model to the base rate, and its weights to those of trained models.

    These are the parent, or without one the first stages.
    """
    start_at_base_rate(job, learner.network)
    check_correctable(job, learner.network)
    if job.start:
        assert job.training.warm_start is not None
        begin_with_parent(learner, pathlib.Path(job.start), job.training.warm_start, work)
        check_weights(job.model.name, learner, "in the parent", "name another training.warm_start.parent")
    else:
        _train_first_stages(job, learner, work, report)


def _train_first_stages(job: TrainingJob, learner: Learner, work: pathlib.Path, report: Report | None) -> None:
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
        result = train_here(first, stage_folder(first, work), report)
        network.take_weights(result.model)


def _in_float32(job: TrainingJob, learner: Learner) -> Learner:
    """Returns a learner with the same weights whose layers all compute in float32, like the served model."""
    served = job.with_training(precision="float32").learner()
    served.load_weights(learner.weights())
    return served
