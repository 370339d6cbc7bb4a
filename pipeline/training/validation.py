"""The metrics of an evaluation on the validation rows."""

import numpy as np

from ctrpipe.common import metrics


def validation_metrics(
    labels: np.ndarray, probabilities: np.ndarray, weights: np.ndarray | None, tasks: tuple[str, ...]
) -> dict[str, float | None]:
    """Returns validation_auc and validation_log_loss of the first task, and validation_<task>_... of the others.

    Args:
        labels: Labels, (rows, tasks).
        probabilities: Predicted probabilities, (rows, tasks).
        weights: Row weights, (rows,); None if rows have no weights.
        tasks: The names of the tasks.
    """
    numbers: dict[str, float | None] = {}
    for index, task in enumerate(tasks):
        name = f"validation_{task}" if index else "validation"
        numbers[f"{name}_auc"] = metrics.auc(labels[:, index], probabilities[:, index], weights)
        numbers[f"{name}_log_loss"] = metrics.log_loss(labels[:, index], probabilities[:, index], weights)
    return numbers
