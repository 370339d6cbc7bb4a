"""Trains a model: from a job and its rows to the served weights."""

import dataclasses
import pathlib

import keras

from ctrpipe.models.base.registry import derives_from
from ctrpipe.pipeline.training.base_rate import logit_correction
from ctrpipe.pipeline.training.data import check_order
from ctrpipe.pipeline.training.handover import check_hosts, train_on_backend, train_on_hosts
from ctrpipe.pipeline.training.job import TrainingJob, TrainResult
from ctrpipe.pipeline.training.job_settings import distilled_job, regularised_job, settled_job
from ctrpipe.pipeline.training.process import Report, other_workers
from ctrpipe.pipeline.training.stages import train_here
from ctrpipe.pipeline.training.warm_start import Start, read_taken


def train(
    job: TrainingJob, work: pathlib.Path, report: Report | None = None, start: Start | None = None
) -> TrainResult:
    """Trains a model.

    Resumes from the checkpoint in `work` if there is one; the weights are the same either way.

    The metrics in the history are computed on the sampled validation rows, before the correction of the logits.

    Args:
        job: The training job.
        work: Folder of this training's checkpoint and TensorBoard logs.
        report: Called with the metrics of each evaluation.
        start: The initial values from the parent of `training.warm_start`; None for random weights.

    Raises:
        InputError: the configuration does not fit the data or the parent, a row's labels do not fit the model, or
            another worker did not join or was lost.
    """
    # 1. Check the rows, resolve the settings that depend on them or on this machine, and find other hosts' workers.
    if derives_from(job.model.name, "esmm"):
        check_order(job.model.name, job.feature_map.tasks, job.train_files + job.validation_files)
    job = settled_job(job)
    others = other_workers(job.training.distribution, job.training.backend)
    if others:
        check_hosts(job)

    # 2. Distillation: mix the training labels with a teacher's predictions.
    if job.training.distillation:
        job = distilled_job(job, work)

    # 3. Scale the regularisation to the number of training rows.
    job = regularised_job(job)

    # 4. Warm start: keep the parent's values where every process of the training finds them.
    if start is not None:
        start.save(work / "warm_start")
        job = dataclasses.replace(job, start=str(work / "warm_start"))

    # 5. Train, in the stages of stages.py: with other hosts, in a process of another Keras backend, or in this process.
    #    A linear model and its trees need none of them.
    if derives_from(job.model.name, "lightgbm"):
        from ctrpipe.pipeline.training.stacked import train_stacked  # lazy: SciPy's optimizers take 0.2 s

        result = train_stacked(job, report)
    elif job.training.optimizer == "lbfgs":
        # Lazy: SciPy's optimizers take 0.2 s of CPU.
        from ctrpipe.pipeline.training.linear import train_linear

        result = train_linear(job, report)
    elif others:
        result = train_on_hosts(job, others, work, report)
    elif job.training.backend != keras.backend.backend():
        result = train_on_backend(job, work, report)
    else:
        result = train_here(job, work, report)

    # 6. Correct the logits for the base rate and the sampled negatives.
    if shift := logit_correction(job, result.learner):
        result.model.shift_logits(shift)
        result.weights_file = None  # the file has the weights before the shift

    # 7. Announce the values that the model took from its parent.
    if start is not None:
        result.taken = read_taken(work)
    return result
