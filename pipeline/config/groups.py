"""Checks that the rows have groups for a loss or a metric within groups."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from ctrpipe.common.errors import InputError
from ctrpipe.common.grouped_auc import have_both_classes
from ctrpipe.common.monitors import BY_GROUP
from ctrpipe.pipeline.config.training import WITHIN_GROUPS, Training

# Of a split: the group's number of each row, int64 [N], and the labels by task, [N] each.
GroupedRows = tuple[np.ndarray, Mapping[str, np.ndarray]]


def check_pairs(training: Training, tasks: Sequence[str], group: str, rows_of: Callable[[str], GroupedRows]) -> None:
    """Checks that groups have rows to compare, for a loss within groups and for a training run that monitors gAUC.

    gAUC is undefined for groups with one class. Groups of one row teach nothing: their pairwise and softmax losses are
    0.

    Args:
        training: The settings of the training.
        tasks: The click tasks, the primary task first.
        group: Name of the column, or of the key that names it.
        rows_of: Returns the rows of "train" or "validation". Called only if a key needs them.

    Raises:
        InputError: no group has both classes.
    """
    if training.monitor in BY_GROUP:
        groups, labels = rows_of("validation")
        if not have_both_classes(groups, labels[tasks[0]]):
            raise InputError(
                f"training.monitor: no group of the validation rows by {group} has both classes; monitor auc"
            )
    compared = [(task, loss) for task, loss in zip(tasks, training.losses(tasks), strict=True) if loss in WITHIN_GROUPS]
    if compared:
        groups, labels = rows_of("train")
        for task, loss in compared:
            if not have_both_classes(groups, labels[task]):
                raise InputError(
                    f"training.loss: {loss} compares rows of a group, and no group of the training rows by {group} has "
                    f"both classes of {task}; name another column or loss"
                )
