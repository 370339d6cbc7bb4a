"""Checks that the numbers of a training are finite, and finds the number of the log that made one infinite."""

import contextlib
import math
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ctrpipe.common.errors import NotFiniteError
from ctrpipe.common.files import not_finite
from ctrpipe.pipeline.training.job import TrainingJob
from ctrpipe.pipeline.training.learner import Learner
from ctrpipe.transforms.log.outliers import find_outlier
from ctrpipe.transforms.log.spec import LogSpec

SMALLER_STEPS = "lower training.learning_rate, or set training.gradient_clip_norm"
_CHUNK = 1 << 20  # numbers that are checked at once, so that a large table is not doubled


def check_loss(model: str, loss: float, when: str) -> None:
    """Raises NotFiniteError for a training loss that is not finite.

    Args:
        model: The name of the model.
        loss: The mean loss of some steps.
        when: Their time, such as "in epoch 1".
    """
    if not math.isfinite(loss):
        raise NotFiniteError(f"{model}: the training loss is not a finite number {when}", SMALLER_STEPS, "train")


def check_predictions(
    name: str, predictions: np.ndarray, split: str, when: str = "", in_order: bool = True, advice: str = SMALLER_STEPS
) -> None:
    """Raises NotFiniteError if a prediction is not finite; it names the first such row, unless all are so.

    Args:
        name: The name of the model.
        predictions: Probabilities or logits, `[N, ...]`.
        split: The split of the rows.
        when: The time of the prediction, such as "in epoch 1".
        in_order: Whether the rows are all rows of the split, in the order of the log.
        advice: What to do.
    """
    rows = np.flatnonzero(~np.isfinite(predictions).reshape(len(predictions), -1).all(axis=1))
    if not len(rows):
        return
    time = f" {when}" if when else ""
    if len(rows) == len(predictions):  # the weights are the cause, not a row
        raise NotFiniteError(f"{name}: all {len(rows):,} predictions came out NaN or infinite{time}", advice, "train")
    raise NotFiniteError(
        f"{name}: {len(rows):,} of {len(predictions):,} predictions came out NaN or infinite{time}",
        advice,
        split,
        int(rows[0]) if in_order else None,
    )


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


def check_figures(name: str, value: Any, advice: str, split: str = "") -> None:
    """Raises NotFiniteError if a number in a value, as deep as JSON goes, is not finite, and names it."""
    if figure := next(not_finite(value), ""):
        raise NotFiniteError(f"{name}: {figure} is not a finite number", advice, split)


@contextlib.contextmanager
def naming_the_number(spec: LogSpec, payload: pathlib.Path) -> Iterator[None]:
    """Adds to a NotFiniteError of the block the column and the number of the log that are its likely cause, if any.

    Args:
        spec: The description of the log.
        payload: The folder of the log's payload.
    """
    try:
        yield
    except NotFiniteError as error:
        outlier = find_outlier(spec, payload, error.split, error.row) if error.split else None
        if outlier is None:
            raise
        raise error.with_(column=outlier.column, number=outlier.number) from error
