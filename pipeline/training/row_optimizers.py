"""Optimizers of embedding tables that update only the rows of the ids in a batch.

Keras's optimizers make the gradient of a table dense and update every row, so the cost of a step grows with the
vocabulary. Here a step reads and writes only the rows of the batch. For each row, let g be the sum of its gradients in
the batch (clipped together with all other gradients by their global norm) and t the step number, counted from 1:

lazy_adam
    m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g²;  row <- row - rate √(1 - b2^t)/(1 - b1^t) · m/(√v + eps)
    with the b1, b2 and eps of the dense weights. This is Adam, except that rows outside the batch keep m, v and their
    values. Dense Adam decays both moments of those rows and changes their values. A row that is in every batch gets
    exactly the updates of Adam.
rowwise_adagrad
    s <- s + mean(g²);  row <- row - rate · g/(√s + eps)  with eps = 1e-10 and one number s per row. It takes a
    sixteenth of Adagrad's memory at width 16.

Row 0 is padding. It stays zero, because FieldEmbedding masks its gradient.
"""

import dataclasses
from typing import Protocol

from keras import ops

from ctrpipe.models.base.tensors import Tensor
from ctrpipe.pipeline.config import Training
from ctrpipe.pipeline.training.network import MOMENTS

ADAGRAD_EPSILON = 1e-10


class RowOptimizer(Protocol):
    """The update rule of an optimizer. The learner gathers the rows and writes them back."""

    @property
    def slot_names(self) -> tuple[str, ...]:
        """Returns the name of each slot. Adam's moments are named like the moments of dense weights."""

    def slot_widths(self, width: int) -> tuple[int, ...]:
        """Returns the width of each slot (state table, initially zero) for a table of this width."""

    def update(
        self, rows: Tensor, slots: tuple[Tensor, ...], gradients: Tensor, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Returns the new rows (ids, width) and the new slots (ids, slot width).

        Args:
            rows, slots, gradients: Values of the distinct ids of a batch, each id once.
            rate: Learning rate.
            step: The step number, counted from 1, as float32.
        """


@dataclasses.dataclass(frozen=True)
class LazyAdam:
    beta_1: float
    beta_2: float
    epsilon: float
    slot_names: tuple[str, ...] = MOMENTS

    def slot_widths(self, width: int) -> tuple[int, ...]:
        return width, width

    def update(
        self, rows: Tensor, slots: tuple[Tensor, ...], gradients: Tensor, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        m = self.beta_1 * slots[0] + (1 - self.beta_1) * gradients
        v = self.beta_2 * slots[1] + (1 - self.beta_2) * ops.square(gradients)
        corrected = rate * ops.sqrt(1 - ops.power(self.beta_2, step)) / (1 - ops.power(self.beta_1, step))
        return rows - corrected * m / (ops.sqrt(v) + self.epsilon), (m, v)


@dataclasses.dataclass(frozen=True)
class RowwiseAdagrad:
    slot_names: tuple[str, ...] = ("sum",)

    def slot_widths(self, width: int) -> tuple[int, ...]:
        return (1,)

    def update(
        self, rows: Tensor, slots: tuple[Tensor, ...], gradients: Tensor, rate: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        total = slots[0] + ops.mean(ops.square(gradients), axis=1, keepdims=True)
        return rows - rate * gradients / (ops.sqrt(total) + ADAGRAD_EPSILON), (total,)


def row_optimizer(training: Training) -> RowOptimizer | None:
    """Returns the row optimizer of `training.optimizer`, or None for `adam`, which updates tables densely."""
    kinds: dict[str, RowOptimizer | None] = {
        "adam": None,
        "lazy_adam": LazyAdam(training.adam_beta_1, training.adam_beta_2, training.adam_epsilon),
        "rowwise_adagrad": RowwiseAdagrad(),
    }
    return kinds[training.optimizer]
