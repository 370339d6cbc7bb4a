"""Losses on logits."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.answers import number_losses
from ctrpipe.models.base.feature_map import NumberTask
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

    `loss = log(1 + e^z) - y z`, for logits z and labels y, (batch_size, tasks) each. A NaN label is unknown: its loss
    and gradient are 0, and the row still counts for its other tasks.

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


def mean_cross_entropy(labels: Tensor, logits: Tensor, weights: Tensor | None = None) -> Tensor:
    """Returns the mean cross-entropy over the labels that are known, float32.

    Args:
        labels, logits: (batch_size, tasks).
        weights: How often each row counts, (batch_size, 1); None: once.
    """
    labels, logits = ops.cast(labels, "float32"), ops.cast(logits, "float32")
    known = ops.logical_not(ops.isnan(labels))
    labels = ops.where(known, labels, 0.0)
    losses = ops.where(known, ops.softplus(logits) - labels * logits, 0.0)
    counts = ops.cast(known, "float32")
    if weights is not None:
        weights = ops.cast(weights, "float32")
        losses, counts = losses * weights, counts * weights
    total = ops.sum(counts)
    return ops.sum(losses) / ops.where(total > 0, total, 1.0)


def logit_of(probabilities: Tensor) -> Tensor:
    """Returns log(p / (1 - p)); p is kept 1e-7 away from 0 and 1."""
    p = ops.clip(probabilities, 1e-7, 1.0 - 1e-7)
    return ops.log(p) - ops.log1p(-p)


def focal(labels: Tensor, logits: Tensor, gamma: float = 2.0, alpha: float | None = None) -> Tensor:
    """Returns the focal loss of each row, `-α_t (1 - p_t)^γ log p_t`, in the shape of the labels.

    p_t is the probability of the row's class, and α_t is `alpha` for a click and 1 - `alpha` otherwise, or 1 without
    `alpha`. A label between 0 and 1 counts as a fraction of a click.

    References:
        Lin et al., "Focal Loss for Dense Object Detection", 2017, equation 5.
    """
    p = ops.sigmoid(logits)
    of_click = ops.power(1.0 - p, gamma) * ops.softplus(-logits)
    of_other = ops.power(p, gamma) * ops.softplus(logits)
    click, other = (1.0, 1.0) if alpha is None else (alpha, 1.0 - alpha)
    return click * labels * of_click + other * (1.0 - labels) * of_other


def same_group(groups: Tensor, known: Tensor) -> Tensor:
    """Returns for each row the rows with a label in its group, float32 0 or 1 (batch_size, batch_size).

    Args:
        groups: The halves of each row's group number, int32 (batch_size, 2). A row with number 0 forms a group of its
            own.
        known: Whether each row has a label, bool (batch_size,).
    """
    same = ops.all(groups[:, None] == groups[None], axis=2)
    has_group = ops.any(groups != 0, axis=1)
    alone = ops.eye(ops.shape(groups)[0], dtype="bool")
    same = ops.logical_or(ops.logical_and(same, has_group[:, None]), alone)
    return ops.cast(ops.logical_and(same, known[None]), "float32")


def pairwise_logistic(labels: Tensor, logits: Tensor, same: Tensor) -> Tensor:
    """Returns the mean loss of each row's pairs, (batch_size,): `y_i mean_j log(1 + e^(z_j - z_i))`.

    The mean is over the rows j of the group without a click, weighted by 1 - y_j; without such rows, the loss is 0.

    Args:
        labels, logits: y and z, float32 (batch_size,).
        same: See `same_group`.

    References:
        Burges et al., "Learning to Rank using Gradient Descent", 2005, equation 3, with labels of 0 and 1.
    """
    others = same * (1.0 - labels)[None]
    pairs = ops.sum(others * ops.softplus(logits[None] - logits[:, None]), axis=1)
    count = ops.sum(others, axis=1)
    return labels * pairs / ops.where(count > 0, count, 1.0)


def softmax_in_group(targets: Tensor, logits: Tensor, same: Tensor) -> Tensor:
    """Returns `-t_i log(e^z_i / Σ_j e^z_j)` of each row, (batch_size,), with the sum over the rows of its group.

    Args:
        targets, logits: t and z, float32 (batch_size,).
        same: See `same_group`.

    References:
        Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", 2007.
    """
    masked = ops.where(same > 0, logits[None], -1e9)
    return targets * (ops.logsumexp(masked, axis=1) - logits)


def joint_ranking_and_calibration(labels: Tensor, logits: Tensor, same: Tensor, share: float) -> Tensor:
    """Returns JRC's loss of each row, (batch_size,): a cross-entropy and, for each class, a softmax within the group.

    `share (log(1 + e^z) - y z) + (1 - share) (-y log(e^z_i / Σ_j e^z_j) - (1 - y) log(e^-z_i / Σ_j e^-z_j))`. The
    paper's model has a logit for each class, and z is their difference. Here a model has one output z, and the class
    logits are z and -z.

    References:
        Sheng et al., "Joint Optimization of Ranking and Calibration with Contextualized Hybrid Model", 2023, equations
        4 to 7.
    """
    ranking = softmax_in_group(labels, logits, same) + softmax_in_group(1.0 - labels, -logits, same)
    return share * (ops.softplus(logits) - labels * logits) + (1.0 - share) * ranking


@dataclasses.dataclass(frozen=True)
class TaskLosses:
    """The loss of each row of a batch, as a weighted mean over tasks that may have different losses.

    Args:
        names: The loss of each task: "binary_cross_entropy", "focal", "pairwise_logistic", "softmax", "jrc", or one of
            `others`.
        task_weights: Weight of each task in the mean; None for equal weights.
        gamma, alpha: See `focal`.
        share: See `joint_ranking_and_calibration`.
        others: Further losses by name: functions of labels and logits, (batch_size,) each, to the loss of each row.
        numbers: The NumberTask of each task, which replaces the named loss by `number_losses`; None for a probability.
            () if all are probabilities.
    """

    names: tuple[str, ...]
    task_weights: tuple[float, ...] | None = None
    gamma: float = 2.0
    alpha: float | None = None
    share: float = 0.5
    others: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = dataclasses.field(default_factory=dict)
    numbers: tuple[NumberTask | None, ...] = ()

    def of_rows(self, labels: Tensor, logits: Tensor, groups: Tensor | None) -> Tensor:
        """Returns the loss of each row, float32 (batch_size,). A task whose label is NaN adds nothing.

        Args:
            labels, logits: float32 (batch_size, tasks).
            groups: The rows' groups, int32 (batch_size, 2); None if no loss needs them.
        """
        weights = self.task_weights or (1.0,) * len(self.names)
        total = 0.0
        for index, name in enumerate(self.names):
            known = ops.logical_not(ops.isnan(labels[:, index]))
            y = ops.where(known, labels[:, index], 0.0)
            z = logits[:, index]
            number = self.numbers[index] if self.numbers else None
            if number is not None:
                losses = number_losses(y, z, number)
            elif name == "binary_cross_entropy":
                losses = ops.softplus(z) - y * z
            elif name == "focal":
                losses = focal(y, z, self.gamma, self.alpha)
            elif name in self.others:
                losses = self.others[name](y, z)
            else:
                same = same_group(groups, known)
                if name == "pairwise_logistic":
                    losses = pairwise_logistic(y, z, same)
                elif name == "softmax":
                    losses = softmax_in_group(y, z, same)
                else:
                    losses = joint_ranking_and_calibration(y, z, same, self.share)
            total += weights[index] * ops.where(known, losses, 0.0)
        return total / sum(weights)
