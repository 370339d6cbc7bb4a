"""Corrects a trained model's logits by a constant, to match the base rate of its training rows."""

from collections.abc import Iterable

import numpy as np
from scipy.special import expit, logit

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.training.learner import Batch, Learner, split_weight

_MOST = 16.0  # largest absolute logit: beyond it, float32 probabilities round to 1
_BINS = 2**16  # bins of logits, each represented by its mean: exact to 1e-8 of a probability


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
    from scipy.optimize import brentq  # takes 0.2 s of CPU time, so it is imported only here

    counts, sums, clicks = np.zeros(_BINS), np.zeros(_BINS), 0.0
    for inputs, labels in batches:
        read, weights = split_weight(inputs)
        _, probabilities = learner.predict([(read, labels)])
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
