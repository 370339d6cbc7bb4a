"""Warnings about a model at the end of a run, independent of the gates."""

from collections.abc import Mapping
from typing import Any

from ctrpipe.pipeline.training.convergence import still_falling

MOST_AUC = 0.98  # models of real clicks are far below
LEAST_RIG = 0.5  # with a lower RIG, a high AUC may be chance on few rows; click models are below 0.3


def notes(metrics: Mapping[str, Any], history: Mapping[str, Any]) -> list[str]:
    """Returns warnings about a model that needs a check before it is used, without a final period.

    Args:
        metrics: The contents of metrics.json.
        history: The contents of history.json.
    """
    sentences = []
    if metrics["rig"] is not None and metrics["rig"] < 0:
        sentences.append(
            f"the model is worse than the base rate: its RIG is {metrics['rig']:.4f}, and that of the test rows' click "
            "rate as every row's prediction is 0"
        )
    auc = metrics.get("auc")
    if auc is not None and auc > MOST_AUC and (metrics["rig"] or 0) > LEAST_RIG:
        sentences.append(
            f"the model is almost perfect on the test rows, with an AUC of {auc:.4f}: some columns together may give "
            "the label away, such as values known only after the click; `ctrpipe explain` names the columns and pairs "
            "it uses"
        )
    for task, measured in metrics.get("tasks", {}).items():
        if (r2 := measured.get("r2")) is not None and r2 < 0:
            sentences.append(
                f"the numbers of {task} are worse predicted than by the mean of the test rows: R2 is {r2:.4f}"
            )
    if figure := history.get("not_finite"):  # absent in a run of a former release
        sentences.append(f"{figure}; the best weights before are kept")
    return sentences + _still_falling(history)


def _still_falling(history: Mapping[str, Any]) -> list[str]:
    """Returns a sentence if the epochs, or the trees, ended while the validation loss still fell."""
    fall = still_falling(history)
    if fall is None:
        return []
    are_trees = " trees" in history["stopped"]
    ended, raised = ("the last tree was grown", "model.trees") if are_trees else ("the epochs ended", "training.epochs")
    return [
        f"the validation log loss was still falling when {ended}, from {fall[0]:.4f} to {fall[1]:.4f} at the last "
        f"evaluation: raise {raised}"
    ]
