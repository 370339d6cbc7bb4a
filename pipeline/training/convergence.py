"""Whether a training has converged, by its history."""

from collections.abc import Mapping
from typing import Any

LEAST_FALL = 1e-4  # share of the validation log loss; a smaller fall counts as none
ALL_DONE = "all "  # how the reason of a training begins that ended because its epochs or iterations did
# Why a training with `decay: cosine` ended. Its loss falls until the rate is 0, so a fall at the end says nothing.
COSINE_ENDED = "the learning rate fell to 0"


def still_falling(history: Mapping[str, Any]) -> tuple[float, float] | None:
    """Returns the lowest validation log loss before the last evaluation and the last one, if that is still falling.

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

    A single evaluation cannot show that the loss has stopped falling: a training with only one has not converged.
    """
    if not history["stopped"].startswith(ALL_DONE):
        return True
    return len(history["evaluations"]) > 1 and "L-BFGS" not in history["stopped"] and still_falling(history) is None
