"""Tells from the history of a training run whether it has converged."""

from collections.abc import Mapping
from typing import Any

LEAST_FALL = 1e-4  # share of the validation log loss; a smaller fall counts as none
ALL_DONE = "all "  # prefix of the reason for a stop after all epochs or iterations
# Reason for the end of a training run with `decay: cosine`. Its loss falls until the rate is 0, which is no reason for
# more epochs.
COSINE_ENDED = "the learning rate fell to 0"


def still_falling(history: Mapping[str, Any]) -> tuple[float, float] | None:
    """Returns the lowest earlier validation log loss and the last one, if the loss was still falling; otherwise None.

    Args:
        history: The contents of history.json.
    """
    losses = [numbers["validation_log_loss"] for numbers in history["evaluations"]]
    if not history["stopped"].startswith(ALL_DONE) or len(losses) < 2:
        return None
    *before, last = losses
    return None if last >= min(before) * (1 - LEAST_FALL) else (min(before), last)


def has_converged(history: Mapping[str, Any]) -> bool:
    """Returns whether more epochs or iterations would hardly change a model.

    Returns False for a single evaluation, because it cannot show that the loss has stopped falling.
    """
    if not history["stopped"].startswith(ALL_DONE):
        return True
    return len(history["evaluations"]) > 1 and "L-BFGS" not in history["stopped"] and still_falling(history) is None
