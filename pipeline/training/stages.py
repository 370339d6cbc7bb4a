"""The stages of a training run in this process, from random weights to the served model."""

import pathlib
import time

from ctrpipe.models.text.cascading import CascadingNNGBDT
from ctrpipe.pipeline.training.averaging import WeightAverage
from ctrpipe.pipeline.training.boosting import load_lightgbm, train_trees
from ctrpipe.pipeline.training.checkpoint import REFIT, Checkpoint, read_state, write_state
from ctrpipe.pipeline.training.finite_learner import check_weights
from ctrpipe.pipeline.training.initial_weights import initialise
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.learner import Learner
from ctrpipe.pipeline.training.loop import train_again_on_all_rows, train_and_evaluate
from ctrpipe.pipeline.training.process import Report
from ctrpipe.pipeline.training.progress import Progress, first_rate
from ctrpipe.pipeline.training.tensorboard_log import TensorBoardLog


def train_here(job: TrainingJob, work: pathlib.Path, report: Report | None) -> TrainResult:
    """Trains a job on this process's Keras backend, with all workers that this process is connected to.

    Args:
        job: The training job. Its settings name a backend and a precision, not `auto`.
        work: Folder of this training's checkpoint and TensorBoard logs.
        report: Called in the chief's process with the metrics of each evaluation.

    Raises:
        InputError: see `train`.
    """
    training, started = job.training, time.monotonic()

    # 1. Build the network, and resume from the checkpoint if there is one.
    job.check_groups()
    learner = job.learner()
    job.check_batches(learner.network)
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
        progress = Progress(learning_rate=first_rate(training))
        initialise(job, learner, work, report, train_here)

    # 3. Train and evaluate in turn, and save each evaluation.
    log = TensorBoardLog(work / "tensorboard") if learner.is_chief else None
    before = progress.seconds  # of the processes that were interrupted
    for numbers in train_and_evaluate(job, learner, average, progress):
        progress.seconds = before + time.monotonic() - started
        checkpoint.save(progress)
        if log:
            log.write(numbers)
        if report:
            report({"model": job.model.name, **numbers})

    # 4. Return to the best weights, or train again from the start on all rows.
    if training.refit:
        learner = job.learner()
        initialise(job, learner, work, report, train_here)
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
        if progress.best is not None and not training.refit:
            progress.evaluations[progress.best] |= with_trees

    written = None if training.refit or boosts else checkpoint.best
    # The other workers may see the chief's folder, while it writes the state.
    state = read_state(work, training.refit) if learner.is_chief else None
    return TrainResult(job, learner, progress, training.precision == "float32", written, state)


def _in_float32(job: TrainingJob, learner: Learner) -> Learner:
    """Returns a learner with the same weights whose layers all compute in float32, like the served model."""
    served = job.with_training(precision="float32").learner()
    served.load_weights(learner.weights())
    return served
