"""The constant by which a trained model's logits miss the base rate of the rows that it has learnt."""

from collections.abc import Iterable

import numpy as np
from scipy.special import expit, logit

from ctrpipe.common.errors import InputError
from ctrpipe.pipeline.training.learner import Batch, Learner, split_weight

_MOST = 16.0  # of a logit's size: float32 has probabilities of 1 beyond
_BINS = 2**16  # of the logits in between; their means stand for them, which is exact to 1e-8 of a probability


def shift_to_base_rate(learner: Learner, batches: Iterable[Batch]) -> float:
    """Returns what has to be added to the logits so that the rows' mean probability is the share of their clicks.

    It is the intercept's condition at a maximum of the likelihood, Σ (y - p) = 0, which a training that stops before
    one misses, by chance and by its regularisation. Rows count by their weights.

    Args:
        learner: The trained model, of one task.
        batches: The rows that it has learnt.

    Raises:
        InputError: the rows have one class only.
    """
    from scipy.optimize import brentq  # 0.2 s of a core, which a training without this does without

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
