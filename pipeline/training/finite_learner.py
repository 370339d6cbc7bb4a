"""Checks that a learner's weights and the numbers of its evaluations are finite."""

from collections.abc import Mapping

import numpy as np

from ctrpipe.common.errors import NotFiniteError
from ctrpipe.common.files import not_finite
from ctrpipe.common.finite import SMALLER_STEPS, check_loss, check_predictions
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import Learner

_CHUNK = 1 << 20  # numbers to check at once, which bounds the memory of the check


def check_evaluation(
    job: TrainingJob,
    learner: Learner,
    when: str,
    loss: float,
    probabilities: np.ndarray,
    metrics: Mapping[str, float | None],
) -> None:
    """Raises NotFiniteError if a number of an evaluation is not finite.

    Args:
        job: The training job.
        learner: The learner that was evaluated.
        when: The time of the evaluation.
        loss: The mean training loss since the previous evaluation.
        probabilities: The predictions of the validation rows, `[N, tasks]`.
        metrics: The metrics on the validation rows.
    """
    check_loss(job.model.name, loss, when)
    if not np.isfinite(probabilities).any():
        check_weights(job.model.name, learner, when)
    in_order = job.feature_map.negative_sampling == 1
    check_predictions(job.model.name, probabilities, "validation", when, in_order)
    if figure := next(not_finite(dict(metrics)), ""):
        raise NotFiniteError(f"{job.model.name}: {figure} is not a finite number {when}", SMALLER_STEPS, "validation")


def check_weights(model: str, learner: Learner, when: str, advice: str = SMALLER_STEPS) -> None:
    """Raises NotFiniteError if a weight of a model is not finite, and names the weight.

    Args:
        model: The name of the model.
        learner: The learner with the weights.
        when: The time, such as "after the training".
        advice: What to do.
    """
    weights = learner.weights()
    for name, values in zip(learner.state_names()[: len(weights)], weights, strict=True):
        if np.issubdtype(values.dtype, np.floating) and not _all_finite(values):
            raise NotFiniteError(f"{model}: the weight {name} is not finite everywhere {when}", advice, "train")


def _all_finite(values: np.ndarray) -> bool:
    flat = values.reshape(-1)
    return all(bool(np.isfinite(flat[start : start + _CHUNK]).all()) for start in range(0, len(flat), _CHUNK))
