"""Losses on logits."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Tensor

_HIGHEST = 1 - 1e-6  # upper bound of a probability that is corrected for fake negatives


def without_fake_negatives(logits: Tensor) -> Tensor:
    """Returns the logits of the true click rate, from the logits of a model trained on fake negatives.

    In such training rows, every positive also appears as a negative. If the model predicts the probability b with the
    logit z, the true rate is `p = b / (1 - b) = e^z` (fake negative calibration; Ktena et al., "Addressing Delayed
    Feedback for Continuous Training with Neural Networks in CTR prediction", 2019). Its logit is `z - log(1 - e^z)`. No
    true rate gives b >= 1/2; p is then 1 - 1e-6.

    Args:
        logits: Logits z of b, of any shape.
    """
    z = ops.minimum(logits, math.log(_HIGHEST))
    return z - ops.log(-ops.expm1(z))


@keras.saving.register_keras_serializable(package="ctrpipe")
class BinaryCrossEntropy(keras.losses.Loss):
    """Cross-entropy of binary labels and logits, averaged over rows and tasks, in nats.

    `loss = log(1 + e^z) - y z`, for logits z and labels y, (batch_size, tasks) each. A label that is NaN is unknown:
    its loss and gradient are 0, and the row counts for its other tasks.

    With `fake_negatives`, every row appears as a negative, and every positive row a second time as a positive. The loss
    is then weighted by `1 + p` where y = 1 and `(1 - p)(1 + p)` where y = 0, with `p = 1 / (1 + e^-z)` as a constant.
    The gradient of this loss is 0 at the true click rate (fake negative weighted; Ktena et al., "Addressing Delayed
    Feedback for Continuous Training with Neural Networks in CTR prediction", 2019, section 3.3).

    Args:
        task_weights: sequence of float. Weight of each task in the mean over tasks; None for equal weights. Defaults
            to None.
        fake_negatives: bool. Whether positive rows also appear as negatives. Defaults to False.
        name: str. Name of the loss.

    Example:
        >>> loss = BinaryCrossEntropy()
        >>> round(float(loss(keras.ops.array([[1.0], [0.0]]), keras.ops.array([[2.0], [-3.0]]))), 4)
        0.0878

    Raises:
        ValueError: a weight is negative, or all are 0.
    """

    def __init__(
        self,
        task_weights: Sequence[float] | None = None,
        fake_negatives: bool = False,
        name: str = "binary_cross_entropy",
        **kwargs: Any,
    ) -> None:
        super().__init__(name=name, **kwargs)
        if task_weights and not (min(task_weights) >= 0 < sum(task_weights)):
            raise ValueError(f"`task_weights` should be non-negative, at least one positive. Received: {task_weights}")
        self.task_weights = tuple(task_weights) if task_weights else None
        self.fake_negatives = fake_negatives

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        known = ops.logical_not(ops.isnan(y_true))
        y_true = ops.where(known, y_true, ops.zeros_like(y_true))
        losses = ops.where(known, ops.softplus(y_pred) - y_pred * y_true, ops.zeros_like(y_pred))
        if self.fake_negatives:
            p = ops.stop_gradient(ops.sigmoid(y_pred))
            losses = losses * (1.0 + p) * (1.0 - p * (1.0 - y_true))
        if self.task_weights is None:
            return ops.mean(losses, axis=-1)
        weights = ops.convert_to_tensor(self.task_weights, losses.dtype)
        return ops.sum(losses * weights, axis=-1) / sum(self.task_weights)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "task_weights": self.task_weights, "fake_negatives": self.fake_negatives}
