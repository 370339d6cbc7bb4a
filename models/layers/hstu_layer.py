"""A layer of HSTU: attention over the items of a history, and of a candidate to the items."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm
from ctrpipe.models.layers.one_history import is_shared


@keras.saving.register_keras_serializable(package="ctrpipe")
class HSTULayer(keras.layers.Layer):
    """Hierarchical sequential transduction unit: pointwise attention with a gate and relative biases.

    `[U, V, Q, K] = SiLU(W LayerNorm(x) + b)`, `A_ij = SiLU(<q_i, k_j> + p_{i-j} + t_{b(j)}) / n_i`, `output = W_o
    (LayerNorm(A V) ∘ U) + x`.

    p is a bias for the distance of the positions, t a bias for the time bucket of item j, and n_i the number of items
    that i attends to, including itself.

    Args:
        heads: int. Number of heads; must divide the width. Defaults to 2.
        buckets: int. Number of time buckets; 0 for no time bias. Defaults to 0.
        dropout: float. Dropout rate of the output, before the residual. Defaults to 0.

    Example:
        >>> items, candidate = keras.random.normal((2, 5, 4)), keras.random.normal((2, 4))
        >>> is_item = keras.ops.ones((2, 5), "bool")
        >>> states, read = HSTULayer(heads=2)(items, candidate, is_item)
        >>> keras.ops.shape(states), keras.ops.shape(read)  # (batch_size, length, width), (batch_size, width)
        ((2, 5, 4), (2, 4))

    Raises:
        ValueError: `heads` is not positive or does not divide the width, or `buckets` is negative.

    References:
        Zhai et al., "Actions Speak Louder than Words: Trillion-Parameter Sequential Transducers for Generative
        Recommendations", 2024, equations 1 to 3.
    """

    def __init__(self, heads: int = 2, buckets: int = 0, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(heads=heads)
        if buckets < 0:
            raise ValueError(f"`buckets` should be non-negative. Received: buckets={buckets}")
        policy = self.dtype_policy
        self.heads = heads
        self.buckets = buckets
        self.dropout = dropout
        self.norm = LayerNorm(epsilon=1e-6, dtype=policy, name="norm")
        self.norm_read = LayerNorm(epsilon=1e-6, dtype=policy, name="norm_read")
        self.drop = keras.layers.Dropout(dropout, dtype=policy) if dropout else None

    def build(
        self, items_shape: Shape, candidate_shape: Shape | None = None, is_item_shape: Shape | None = None
    ) -> None:
        length, width = items_shape[1:]
        if width % self.heads:
            raise ValueError(f"`heads` should divide the width {width}. Received: heads={self.heads}")
        self.width = width
        for name, units in (("project", 4 * width), ("out", width)):
            layer = keras.layers.Dense(units, dtype=self.dtype_policy, name=name)
            layer.build((None, None, width))
            setattr(self, name, layer)
        self.norm.build((None, None, width))
        self.norm_read.build((None, None, width))
        self.places = self.add_weight(name="places", shape=(length + 1,), initializer="zeros")
        if self.buckets:
            self.times = self.add_weight(name="times", shape=(self.buckets,), initializer="zeros")

    def call(
        self,
        items: Tensor,
        candidate: Tensor,
        is_item: Tensor,
        buckets: Tensor | None = None,
        training: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Returns the new states of the items, (batch_size, length, width), and of the candidate, (batch_size, width).

        Args:
            items: The states of the items, newest first, (batch_size, length, width), or (1, length, width) for all
                candidates. An item attends to itself and older items.
            candidate: The state of the candidate, (batch_size, width), which attends to itself and all items.
            is_item: False for padding, bool (batch_size, length), or (1, length).
            buckets: The time bucket of each item, int32 (batch_size, length), or (1, length), with `buckets`.
            training: Whether dropout is on.
        """
        length = items.shape[1]
        gate, value, query, key = self._parts(items)
        place_bias = ops.cast(self.places, "float32")
        item_bias = ops.zeros((1, 1, length))
        if self.buckets:
            item_bias = ops.take(ops.cast(self.times, "float32"), buckets, axis=0)[:, None]
        ages = ops.arange(length)
        distances = ops.maximum(ages[None] - ages[:, None], 0)
        sees = ops.logical_and(is_item[:, None], (ages[None] >= ages[:, None])[None])
        bias = ops.take(place_bias, distances, axis=0)[None] + item_bias
        count = ops.maximum(ops.sum(ops.cast(sees, "float32"), axis=2, keepdims=True), 1.0)
        scores = self._scores(query, key) + bias[:, None]
        weights = ops.where(sees[:, None], ops.silu(scores), 0.0) / count[:, None]
        states = self._output(items, ops.matmul(ops.cast(weights, value.dtype), value), gate, training)

        own_gate, own_value, own_query, own_key = self._parts(candidate[:, None])
        total = ops.sum(ops.cast(is_item, "float32"), axis=1)[:, None, None, None] + 1.0
        bias = place_bias[1:][None, None] + item_bias
        shared = is_shared(candidate, items)
        if shared:  # the candidates are the queries of one row
            own_query = ops.transpose(own_query, (2, 1, 0, 3))
        scores = self._scores(own_query, key) + bias[:, None]
        weights = ops.where(is_item[:, None, None], ops.silu(scores), 0.0) / total
        read = ops.matmul(ops.cast(weights, value.dtype), value)
        if shared:
            read = ops.transpose(read, (2, 1, 0, 3))
            own_query = ops.transpose(own_query, (2, 1, 0, 3))
        of_itself = ops.cast(ops.sum(own_query * own_key, axis=-1, keepdims=True), "float32") + place_bias[0]
        read = read + ops.cast(ops.silu(of_itself) / total, own_value.dtype) * own_value
        return states, self._output(candidate[:, None], read, own_gate, training)[:, 0]

    def _parts(self, states: Tensor) -> list[Tensor]:
        """Returns U, (batch_size, tokens, width), and V, Q, K by head, (batch_size, heads, tokens, width / heads)."""
        tokens = states.shape[1]
        gate, *others = ops.split(ops.silu(self.project(self.norm(states))), 4, axis=2)
        split = [ops.reshape(one, (-1, tokens, self.heads, self.width // self.heads)) for one in others]
        return [gate, *(ops.transpose(one, (0, 2, 1, 3)) for one in split)]

    def _scores(self, query: Tensor, key: Tensor) -> Tensor:
        return ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32")

    def _output(self, states: Tensor, read: Tensor, gate: Tensor, training: bool | None) -> Tensor:
        tokens = states.shape[1]
        joined = ops.reshape(ops.transpose(read, (0, 2, 1, 3)), (-1, tokens, self.width))
        outputs = self.out(self.norm_read(joined) * gate)
        if self.drop is not None:
            outputs = self.drop(outputs, training=training)
        return outputs + states

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), heads=self.heads, buckets=self.buckets, dropout=self.dropout)
