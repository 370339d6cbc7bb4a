"""Losses on logits."""

import math
from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Tensor

_HIGHEST = 1 - 1e-6  # of a probability that is corrected for fake negatives


def without_fake_negatives(logits: Tensor) -> Tensor:
    """Returns the logits of the true rate, for those of rows of which every positive one is there as a negative too.

    With b the probability that a model of such rows gives, the true rate is `p = b / (1 - b) = e^z` (fake negative
    calibration; Ktena et al., "Addressing Delayed Feedback for Continuous Training with Neural Networks in CTR
    prediction", 2019). Its logit is `z - log(1 - e^z)`. Of a b of a half and more, which no rate makes,
    p is 1 - 1e-6.

    Args:
        logits: Those of b, of any shape.
    """
    z = ops.minimum(logits, math.log(_HIGHEST))
    return z - ops.log(-ops.expm1(z))


@keras.saving.register_keras_serializable(package="ctrpipe")
class BinaryCrossEntropy(keras.losses.Loss):
    """Cross-entropy of binary labels and logits, averaged over rows and tasks, in nats.

    `loss = log(1 + e^z) - y z`, for logits z and labels y, (batch_size, tasks) each.

    With `fake_negatives` every row is there as a negative, and a positive one a second time, as such. Then the loss is
    weighted by `1 + p` where y = 1 and `(1 - p)(1 + p)` where y = 0, with `p = 1 / (1 + e^-z)` as a constant, so that
    its gradient is 0 at the rate of the true labels (fake negative weighted; Ktena et al., "Addressing Delayed Feedback
    for Continuous Training with Neural Networks in CTR prediction", 2019, section 3.3).

    Args:
        task_weights: sequence of float. Weight of each task in the mean over tasks; None for equal weights. Defaults
            to None.
        fake_negatives: bool. Whether positive rows are there as negatives too. Defaults to False.
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
            raise ValueError(f"`task_weights` should be non-negative, one positive. Received: {task_weights}")
        self.task_weights = tuple(task_weights) if task_weights else None
        self.fake_negatives = fake_negatives

    def call(self, y_true: Tensor, y_pred: Tensor) -> Tensor:
        losses = ops.softplus(y_pred) - y_pred * y_true
        if self.fake_negatives:
            p = ops.stop_gradient(ops.sigmoid(y_pred))
            losses = losses * (1.0 + p) * (1.0 - p * (1.0 - y_true))
        if self.task_weights is None:
            return ops.mean(losses, axis=-1)
        weights = ops.convert_to_tensor(self.task_weights, losses.dtype)
        return ops.sum(losses * weights, axis=-1) / sum(self.task_weights)

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "task_weights": self.task_weights, "fake_negatives": self.fake_negatives}
