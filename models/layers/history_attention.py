"""Attention to the items of a history, with softmax or pointwise weights (HSTU)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm

KINDS = ("softmax", "pointwise")


@keras.saving.register_keras_serializable(package="ctrpipe")
class HistoryAttention(keras.layers.Layer):
    """Multi-head attention to the items that a query may see, with a residual and layer normalisation.

    `output = LayerNorm(q + Σ_j a_j V_j O)`, where the weights are `a = softmax(s)` ("softmax") or `a = SiLU(s) / n`
    ("pointwise"), with the scores `s = Q Kᵀ / sqrt(width / heads)` and n the number of items that the query sees.

    A pointwise weight does not depend on the other items: the sum reflects how much of the history resembles the query.
    A query that sees no item gets LayerNorm(q).

    Args:
        heads: int. Number of heads; must divide the width. Defaults to 2.
        kind: str. "softmax" or "pointwise". Defaults to "softmax".
        dropout: float. Dropout rate on the output of the attention, before the residual. Defaults to 0.

    Example:
        >>> queries, items = keras.random.normal((2, 3, 4)), keras.random.normal((2, 5, 4))
        >>> sees = keras.ops.ones((2, 3, 5), "bool")
        >>> keras.ops.shape(HistoryAttention(heads=2)(queries, items, sees))  # (batch_size, queries, width)
        (2, 3, 4)

    Raises:
        ValueError: `kind` is unknown, or `heads` is not positive or does not divide the width.

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.2; Zhai et al., "Actions Speak Louder than Words:
        Trillion-Parameter Sequential Transducers for Generative Recommendations", 2024, equation 2, without its gate
        and its relative positions.
    """

    def __init__(self, heads: int = 2, kind: str = "softmax", dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(heads=heads)
        if kind not in KINDS:
            raise ValueError(f"`attention` should be one of {KINDS}. Received: {kind!r}")
        self.heads = heads
        self.kind = kind
        self.dropout = dropout
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.norm = LayerNorm(epsilon=1e-6, dtype=self.dtype_policy, name="norm")

    def build(self, queries_shape: Shape, items_shape: Shape | None = None, sees_shape: Shape | None = None) -> None:
        width = queries_shape[-1]
        if width % self.heads:
            raise ValueError(f"`heads` should divide the width {width}. Received: heads={self.heads}")
        for name, units in (("query", width), ("key_value", 2 * width), ("out", width)):
            layer = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name=name)
            layer.build((None, None, width))
            setattr(self, name, layer)
        self.norm.build(queries_shape)

    def call(self, queries: Tensor, items: Tensor, sees: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, queries, width) to the same shape.

        Args:
            queries: (batch_size, queries, width).
            items: (batch_size, length, width).
            sees: Which items each query sees, bool, broadcastable to (batch_size, queries, length).
            training: Whether dropout is on.
        """
        count, length, width = ops.shape(queries)[1], items.shape[1], queries.shape[2]
        head = width // self.heads

        def heads_of(projected: Tensor, tokens: int, parts: int) -> list[Tensor]:
            split = ops.reshape(projected, (-1, tokens, parts, self.heads, head))
            unstacked: list[Tensor] = ops.unstack(ops.transpose(split, (2, 0, 3, 1, 4)), parts, axis=0)
            return unstacked

        (query,) = heads_of(self.query(queries), count, 1)
        key, value = heads_of(self.key_value(items), length, 2)
        scores = ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32") / head**0.5
        weights = ops.cast(self._weights(scores, sees[:, None]), value.dtype)
        mixed = ops.reshape(ops.transpose(ops.matmul(weights, value), (0, 2, 1, 3)), (-1, count, width))
        return self.norm(queries + self.drop(self.out(mixed), training=training))

    def _weights(self, scores: Tensor, sees: Tensor) -> Tensor:
        """Returns the weights, float32 (batch_size, heads, queries, length); zero for items that are not visible."""
        if self.kind == "pointwise":
            count = ops.maximum(ops.sum(ops.cast(sees, "float32"), axis=-1, keepdims=True), 1.0)
            return ops.where(sees, ops.silu(scores), 0.0) / count
        return ops.where(sees, ops.softmax(ops.where(sees, scores, -1e9), axis=-1), 0.0)

    def compute_output_shape(self, queries_shape: Shape, items_shape: Shape, sees_shape: Shape) -> Shape:
        return queries_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), heads=self.heads, kind=self.kind, dropout=self.dropout)
