"""Matches a model's logits to the base rate of its training rows, before the training and after it."""

import math
from collections.abc import Iterable

import numpy as np
from scipy.special import expit, logit

from ctrpipe.common.errors import InputError
from ctrpipe.common.finite import check_predictions
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.pipeline.training.data import base_rates, packed_batches, prediction_rows
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import Batch, Learner, split_weight

_MOST = 16.0  # largest absolute logit: beyond it, float32 probabilities round to 1
_BINS = 2**16  # bins of logits, each represented by its mean: exact to 1e-8 of a probability


def start_at_base_rate(job: TrainingJob, network: CTRModel) -> None:
    """Sets the output biases of an untrained model to the base rate, if the job asks for it.

    Raises:
        InputError: the model has no output biases.
    """
    if not job.training.start_at_base_rate:
        return
    try:
        rates = base_rates(job.train_files)
        predicted = job.feature_map.numbers_by_task.values()
        # For a task that predicts a number, an output of 0, the log-odds of 1/2, already stands for the mean.
        rates = np.where([number is None for number in predicted], rates, 0.5)
        if job.training.fake_negative_weighting:
            seen = np.minimum(rates, 0.5)
            rates = seen / (1 - seen)  # rate over distinct rows: each positive is also present as a fake negative
        network.start_at(rates)
    except ValueError as error:
        raise InputError(f"training.start_at_base_rate: {error}") from error


def check_correctable(job: TrainingJob, network: CTRModel) -> None:
    """Raises InputError if the trained model's logits have to be corrected and it has no output biases."""
    is_sampled = job.feature_map.negative_sampling < 1
    if not (is_sampled or job.training.end_at_base_rate):
        return
    try:
        network.output_biases()
    except ValueError as error:
        if is_sampled:
            raise InputError(f"data.negative_sampling: {error}") from error
        raise InputError(f"training.end_at_base_rate: {error}") from error


def logit_correction(job: TrainingJob, learner: Learner) -> float:
    """Returns the constant to add to the logits of a trained model; 0 for none.

    With `training.end_at_base_rate`, it is the shift of `shift_to_base_rate`. If `feature_map.negative_sampling` is
    below 1, its logarithm is added: the prior correction of King and Zeng 2001, "Logistic Regression in Rare Events
    Data". With only this share of the negatives, the odds are 1 / share times the odds on all rows.

    Raises:
        InputError: the training rows have one class only.
    """
    shift = 0.0
    if job.training.end_at_base_rate:
        learnt = job.train_files + (job.validation_files if job.training.refit else [])
        rows = packed_batches(learnt, job.feature_map, prediction_rows(job.feature_map), weighted=True)
        shift = shift_to_base_rate(learner, rows)
    if job.feature_map.negative_sampling < 1:
        shift += math.log(job.feature_map.negative_sampling)
    return shift


def shift_to_base_rate(learner: Learner, batches: Iterable[Batch]) -> float:
    """Returns the constant to add to the logits so that the mean click probability equals the share of clicks.

    At a maximum of the likelihood the intercept satisfies Σ (y - p) = 0. A training run that stops before the maximum
    misses this condition, by chance and because of its regularisation. Rows count by their weights.

    Args:
        learner: The trained model, with one task.
        batches: The rows that it was trained on.

    Raises:
        InputError: the rows have one class only.
    """
    from scipy.optimize import brentq  # lazy: takes 0.2 s, and other training runs do not need it

    counts, sums, clicks = np.zeros(_BINS), np.zeros(_BINS), 0.0
    for inputs, labels in batches:
        read, weights = split_weight(inputs)
        _, probabilities = learner.predict([(read, labels)])
        check_predictions("training.end_at_base_rate", probabilities, "train", in_order=False)
        weights = np.ones(len(labels)) if weights is None else np.asarray(weights, np.float64)
        logits = np.clip(logit(probabilities[:, 0].astype(np.float64)), -_MOST, _MOST)
        bins = np.minimum((logits + _MOST) * (_BINS / (2 * _MOST)), _BINS - 1).astype(np.int64)
        counts += np.bincount(bins, weights, _BINS)
        sums += np.bincount(bins, weights * logits, _BINS)
        clicks += float(weights @ np.asarray(labels, np.float64)[:, 0])
    seen = counts > 0
    counts, means = counts[seen], sums[seen] / counts[seen]
    if not 0 < clicks < counts.sum():
        raise InputError("training.end_at_base_rate: the training rows have one class only")

    def excess(shift: float) -> float:
        return float(counts @ expit(means + shift)) - clicks

    return float(brentq(excess, -4 * _MOST, 4 * _MOST, xtol=1e-10))
