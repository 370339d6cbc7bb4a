"""Losses on logits."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="ctrpipe")
class BinaryCrossEntropy(keras.losses.Loss):
    """Mean over rows and tasks of log(1 + e^z) - y z, for logits z and labels y (batch_size, tasks).

    Args:
        task_weights: Weight of each task in the mean over tasks; equal by default.
    """

    def __init__(self, task_weights: Sequence[float] | None = None, name="binary_cross_entropy", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        if task_weights and not (min(task_weights) >= 0 < sum(task_weights)):
            raise ValueError(f"`task_weights` should be non-negative, one positive. Received: {task_weights}")
        self.task_weights = tuple(task_weights) if task_weights else None

    def call(self, y_true, y_pred):
        losses = ops.softplus(y_pred) - y_pred * y_true
        if self.task_weights is None:
            return ops.mean(losses, axis=-1)
        weights = ops.convert_to_tensor(self.task_weights, losses.dtype)
        return ops.sum(losses * weights, axis=-1) / sum(self.task_weights)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "task_weights": self.task_weights}
