"""Checks that the figures of a run are finite."""

import math

import numpy as np

from ctrpipe.common.errors import NotFiniteError
from ctrpipe.common.files import not_finite

SMALLER_STEPS = "lower training.learning_rate, or set training.gradient_clip_norm"


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
    """Raises NotFiniteError if a prediction is not finite. It names the first such row, unless no prediction is finite.

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


def check_figures(name: str, value: object, advice: str, split: str = "") -> None:
    """Raises NotFiniteError if a number in a value, as deep as JSON goes, is not finite, and names it."""
    if figure := next(not_finite(value), ""):
        raise NotFiniteError(f"{name}: {figure} is not a finite number", advice, split)
