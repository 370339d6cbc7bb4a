"""What the end of a run says about a model whatever the gates say."""

from collections.abc import Mapping
from typing import Any

LEAST_FALL = 1e-4  # share of the validation log loss; a smaller fall counts as none


def notes(metrics: Mapping[str, Any], history: Mapping[str, Any]) -> list[str]:
    """Returns sentences about a model that deserves a look before it is used, without a final period.

    Args:
        metrics: The contents of metrics.json.
        history: The contents of history.json.
    """
    found = []
    if metrics["rig"] is not None and metrics["rig"] < 0:
        found.append(
            f"the model is worse than the base rate: its RIG is {metrics['rig']:.4f}, and that of the test rows' click "
            "rate as every row's prediction is 0"
        )
    if figure := history.get("not_finite"):  # absent in a run of a former release
        found.append(f"{figure}, and the best weights before are what was kept")
    return found + _still_falling(history)


def _still_falling(history: Mapping[str, Any]) -> list[str]:
    """Returns a sentence if the epochs ended while the validation loss still fell."""
    losses = [numbers["validation_log_loss"] for numbers in history["evaluations"]]
    if not history["stopped"].startswith("all ") or len(losses) < 2:
        return []
    *before, last = losses
    if last >= min(before) * (1 - LEAST_FALL):
        return []
    return [
        f"the validation log loss was still falling when the epochs ended, from {min(before):.4f} to {last:.4f} at the "
        "last evaluation: raise training.epochs"
    ]
