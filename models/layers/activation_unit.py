"""Pooling of a history by a network that compares each item with the candidate (DIN)."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.one_history import is_shared, weighted_sum
from ctrpipe.models.layers.tower import Tower

# Above this share of non-padding places, training is faster if padding is computed too; for histories of 50 items.
_FEW_EMPTY = 0.75


@keras.saving.register_keras_serializable(package="ctrpipe")
class ActivationUnit(keras.layers.Layer):
    """Sums the items of a history, weighted by a network that reads each item and the candidate.

    `output = Σ_j a(e_j, v) e_j` over the items j, where `a(e, v) = MLP([v, e, v - e, v ∘ e])`. The weights are not
    normalised: their sum reflects how much of the history is relevant to the candidate.

    Args:
        hidden_units: sequence of int. Widths of the network's hidden layers. Defaults to (80, 40), as in the
            authors' code.
        activation: str. Activation of the hidden layers. Defaults to "sigmoid", as in the authors' code.

    Example:
        >>> candidate, items = keras.random.normal((2, 4)), keras.random.normal((2, 5, 4))
        >>> is_item = keras.ops.ones((2, 5), "bool")
        >>> keras.ops.shape(ActivationUnit((3,))(candidate, items, is_item))  # (batch_size, width)
        (2, 4)

    References:
        Zhou et al., "Deep Interest Network for Click-Through Rate Prediction", 2018, equation 3.
    """

    def __init__(self, hidden_units: Sequence[int] = (80, 40), activation: str = "sigmoid", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.hidden_units = tuple(hidden_units)
        self.activation = activation
        self.score = Tower(hidden_units, activation=activation, dtype=self.dtype_policy, name="score")

    def build(
        self, candidate_shape: Shape, items_shape: Shape | None = None, is_item_shape: Shape | None = None
    ) -> None:
        self.score.build((None, 4 * candidate_shape[-1]))

    def call(self, candidate: Tensor, items: Tensor, is_item: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, width), (batch_size, length, width), bool (batch_size, length) to (batch_size, width).

        All candidates may share one history, (1, length, width) and (1, length).
        """
        if is_shared(candidate, items):
            return self._by_candidate(candidate, items, is_item)
        if keras.backend.backend() != "tensorflow":
            weights = self._weights(ops.broadcast_to(candidate[:, None], ops.shape(items)), items)
            return ops.sum(ops.where(is_item[:, :, None], weights * items, 0), axis=1)
        if not training:
            return self._without_padding(candidate, items, is_item)
        return ops.cond(
            ops.mean(ops.cast(is_item, "float32")) > _FEW_EMPTY,
            lambda: self._by_candidate(candidate, items, is_item),
            lambda: self._without_padding(candidate, items, is_item),
        )

    def _without_padding(self, candidate: Tensor, items: Tensor, is_item: Tensor) -> Tensor:
        """Returns the sums; the network is not computed for padding.

        Histories of varying lengths have about as much padding as items. The number of items changes from batch to
        batch, which TensorFlow allows and JAX does not.
        """
        length, width = items.shape[1:]
        places = ops.cast(ops.nonzero(ops.reshape(is_item, (-1,)))[0], "int32")
        rows = places // length
        there = ops.take(ops.reshape(items, (-1, width)), places, axis=0)
        weights = self._weights(ops.take(candidate, rows, axis=0), there)
        return ops.segment_sum(weights * there, rows, num_segments=ops.shape(items)[0])

    def _weights(self, beside: Tensor, items: Tensor) -> Tensor:
        """Returns the weights of items, (..., 1), from the items and their candidates, both (..., width)."""
        *kernels, bias = self._first_layer(items.dtype)
        both = ops.concatenate([beside, items, beside * items], axis=-1)
        return self._after_first(ops.matmul(both, ops.concatenate(kernels, axis=0)) + bias)

    def _by_candidate(self, candidate: Tensor, items: Tensor, is_item: Tensor) -> Tensor:
        """Returns the sums, computed for all places.

        The first layer is `[e, 1] [B - C + v ∘ D; v (A + C) + b]`, with one matrix per candidate. This takes a quarter
        of the multiplications and stores no concatenation of items and candidates.
        """
        of_candidate, of_item, of_product, bias = self._first_layer(items.dtype)
        of_one = ops.matmul(candidate, of_candidate) + bias
        of_items = of_item + candidate[:, :, None] * of_product
        with_one = ops.concatenate([items, ops.ones_like(items[:, :, :1])], axis=2)
        weights = self._after_first(ops.matmul(with_one, ops.concatenate([of_items, of_one[:, None]], axis=1)))
        return weighted_sum(ops.where(is_item, weights[:, :, 0], 0), items)

    def _dense(self) -> list[keras.layers.Dense]:
        assert self.score.logits is not None
        return [*self.score.hidden, self.score.logits]

    def _first_layer(self, dtype: str) -> list[Tensor]:
        """Returns the kernels of v, of e and of v ∘ e, (width, units), and the bias of the first layer.

        The kernel [A; B; C; D] on [v, e, v - e, v ∘ e] equals [A + C; B - C; D] on [v, e, v ∘ e].
        """
        first = self._dense()[0]
        of_candidate, of_item, of_difference, of_product = ops.split(ops.cast(first.kernel, dtype), 4, axis=0)
        return [of_candidate + of_difference, of_item - of_difference, of_product, ops.cast(first.bias, dtype)]

    def _after_first(self, values: Tensor) -> Tensor:
        """Returns the network's output, (..., 1), from the first layer's values before the activation, (..., units)."""
        first, *others = self._dense()
        weights = first.activation(values)
        for layer in others:
            weights = layer(weights)
        return weights

    def compute_output_shape(self, candidate_shape: Shape, items_shape: Shape, is_item_shape: Shape) -> Shape:
        return candidate_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), hidden_units=self.hidden_units, activation=self.activation)
