"""The metrics of an evaluation on the validation rows."""

from collections.abc import Collection

import numpy as np

from ctrpipe.common import metrics
from ctrpipe.common.grouped_auc import NO_GROUP, group_aucs


def validation_metrics(
    labels: np.ndarray,
    probabilities: np.ndarray,
    weights: np.ndarray | None,
    tasks: tuple[str, ...],
    groups: np.ndarray | None = None,
    group_weight: str = "impressions",
    numbers: Collection[str] = (),
) -> dict[str, float | None]:
    """Returns validation_auc and validation_log_loss of the first task, and validation_<task>_... of the others.

    With groups, also returns validation_gauc. A task that predicts a number has validation_<task>_rmse and
    validation_<task>_mae instead.

    Args:
        labels: Labels, (rows, tasks).
        probabilities: Predicted probabilities, (rows, tasks).
        weights: Row weights, (rows,); None if rows have no weights.
        tasks: The names of the tasks.
        groups: The number of each row's group, int64 (rows,); None without groups.
        group_weight: What a group's AUC is weighted by.
        numbers: The tasks that predict a number.
    """
    measured: dict[str, float | None] = {}
    for index, task in enumerate(tasks):
        name = f"validation_{task}" if index else "validation"
        if task in numbers:
            measured[f"{name}_rmse"] = metrics.rmse(labels[:, index], probabilities[:, index], weights)
            measured[f"{name}_mae"] = metrics.mae(labels[:, index], probabilities[:, index], weights)
            continue
        measured[f"{name}_auc"] = metrics.auc(labels[:, index], probabilities[:, index], weights)
        measured[f"{name}_log_loss"] = metrics.log_loss(labels[:, index], probabilities[:, index], weights)
        if groups is not None:
            own = groups != NO_GROUP
            of_groups = None if weights is None else weights[own]
            aucs = group_aucs(groups[own], labels[own, index], probabilities[own, index], of_groups, group_weight)
            measured[f"{name}_gauc"] = aucs.value
    return measured
