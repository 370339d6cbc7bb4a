"""Resolves open settings of a training job: `auto`, labels from a teacher, and the strength of the regularisation."""

import dataclasses
import pathlib

from ctrpipe.common.progress import announce
from ctrpipe.pipeline.config import Model, Training
from ctrpipe.pipeline.training.auto_settings import settled, slow_precision
from ctrpipe.pipeline.training.data import count_rows
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.serving.stored import fetch_model

PENALTIES = ("table_l2", "network_l2")  # fields of Training
STRENGTHS = ("l2", "embedding_l2", "linear_l2")
DROPOUTS = ("dropout", "embedding_dropout")


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
    teacher, weight = fetch_model(job.training.distillation.teacher), job.training.distillation.weight
    softened = soften_labels(job.train_files, job.feature_map, teacher, weight, work / "distilled")
    return dataclasses.replace(job, train_files=[softened])


def regularised_job(job: TrainingJob) -> TrainingJob:
    """Returns the job with its regularisation scaled to the number of training rows."""
    model, training = regularised(job.model, job.training, count_rows(job.train_files))
    return dataclasses.replace(job, model=model, training=training)


def regularised(model: Model, training: Training, rows: int) -> tuple[Model, Training]:
    """Returns the model and the training settings with their regularisation scaled to the number of rows.

    L2 regularisation is a prior on the weights, balanced against the log likelihood of all rows. Relative to the mean
    loss its strength falls as 1 / rows. To second order, dropout with rate p acts as an L2 penalty whose strength is
    proportional to the odds p / (1 - p). The odds therefore fall as 1 / rows too.

    Args:
        model: Hyperparameters as configured, for `training.regularisation_rows` rows.
        training: The training settings; PENALTIES are scaled.
        rows: The number of training rows, at least 1.

    References:
        Wager, Wang and Liang, "Dropout Training as Adaptive Regularization", 2013, equation 12.
    """
    if training.regularisation_rows is None:
        return model, training
    factor = training.regularisation_rows / rows
    scaled = dict(model.hyperparameters)
    for name in STRENGTHS:
        if name in scaled:
            scaled[name] *= factor
    for name in DROPOUTS:
        if name in scaled:
            rates = scaled[name]
            of_one = isinstance(rates, int | float)
            scaled[name] = _with_odds(rates, factor) if of_one else [_with_odds(rate, factor) for rate in rates]
    penalties = {name: getattr(training, name) * factor for name in PENALTIES}
    return model.of_stage(model.name, scaled), training.model_copy(update=penalties)


def _with_odds(rate: float, factor: float) -> float:
    """Returns the rate whose odds are `factor` times the odds of `rate`."""
    return factor * rate / (1 - rate + factor * rate)
