"""Resolves open settings of a training job: `auto`, labels from a teacher, and the strength of the regularisation."""

import dataclasses
import pathlib

from ctrpipe.common.progress import announce
from ctrpipe.pipeline.training.auto_settings import settled, slow_precision
from ctrpipe.pipeline.training.data import count_rows
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.regularisation import regularised


def settled_job(job: TrainingJob) -> TrainingJob:
    """Returns the job with `auto` resolved, and announces the choice. Warns if the precision is slow here."""
    training = job.training
    if "auto" in (training.backend, training.precision):
        training = settled(job.model, training, count_rows(job.train_files))
        announce(f"Training on {training.backend} in {training.precision} (chosen by `auto`)")
    if slow := slow_precision(training):
        announce(slow)
    feature_map = dataclasses.replace(job.feature_map, fake_negatives=training.fake_negative_calibration)
    return dataclasses.replace(job, training=training, feature_map=feature_map)


def distilled_job(job: TrainingJob, work: pathlib.Path) -> TrainingJob:
    """Returns the job on training rows whose labels are mixed with the teacher's predictions.

    Args:
        job: The job, with `training.distillation`.
        work: Folder of the training, where the rows are written.
    """
    # Lazy: TensorFlow takes 4 s, and a training run in JAX's process does not need it.
    from ctrpipe.pipeline.training.distillation import soften_labels

    assert job.training.distillation is not None
    teacher, weight = pathlib.Path(job.training.distillation.teacher), job.training.distillation.weight
    softened = soften_labels(job.train_files, job.feature_map, teacher, weight, work / "distilled")
    return dataclasses.replace(job, train_files=[softened])


def regularised_job(job: TrainingJob) -> TrainingJob:
    """Returns the job with its regularisation scaled to the number of training rows."""
    model, training = regularised(job.model, job.training, count_rows(job.train_files))
    return dataclasses.replace(job, model=model, training=training)
