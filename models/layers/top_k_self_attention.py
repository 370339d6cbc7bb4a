"""Attention-Net's self-attention over fields."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class TopKSelfAttention(keras.layers.Layer):
    """Self-attention to the k fields with the highest scores, then a feed-forward network.

    `Q, K, V = relu(E W_q), relu(E W_k), relu(E W_v)` in h heads; `A = Q Kᵀ / sqrt(d / h)`;
    `Ṽ = concat_h(softmax(TopK(A, k)) V) + E`; `output = relu(Ṽ W_1) W_2 + Ṽ`.

    Every row of A keeps the scores that are at least its k-th largest score. All ties with the k-th score are kept: the
    order of the fields never matters.

    Args:
        heads: int. Number h of heads; must divide the width d of the input. Defaults to 4.
        top_k: int. Number k of fields to attend to; None for plain attention. Defaults to 5.

    Example:
        >>> rows = keras.random.normal((2, 6, 8))  # (batch_size, fields, dim)
        >>> keras.ops.shape(TopKSelfAttention(heads=2, top_k=3)(rows))
        (2, 6, 8)

    Raises:
        ValueError: `heads` or `top_k` is not positive, or `heads` does not divide the width.

    References:
        "Learning Representations of Categorical Feature Combinations via Self-Attention", equations 3 to 8.
    """

    def __init__(self, heads: int = 4, top_k: int | None = 5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if heads < 1:
            raise ValueError(f"`heads` should be positive. Received: heads={heads}")
        if top_k is not None and top_k < 1:
            raise ValueError(f"`top_k` should be positive or None. Received: top_k={top_k}")
        self.heads = heads
        self.top_k = top_k

    def build(self, input_shape: Shape) -> None:
        self.fields, self.dim = input_shape[1], input_shape[2]
        if self.dim % self.heads:
            raise ValueError(f"`heads` should divide the width {self.dim}. Received: heads={self.heads}")
        shape = (self.dim, self.dim)
        for name in ("query", "key", "value", "ffn_in", "ffn_out"):
            setattr(self, name, self.add_weight(name=name, shape=shape, initializer="glorot_uniform"))

    def call(self, inputs: Tensor, return_attention: bool = False) -> Tensor:
        """Maps (batch_size, fields, dim) to the same shape.

        With `return_attention`, also returns the attention, float32 (batch_size, heads, fields, fields).
        """
        # One matrix product for Q, K and V takes less time than three small ones.
        qkv = ops.concatenate([self.query, self.key, self.value], axis=1)
        qkv = ops.relu(ops.matmul(inputs, ops.cast(qkv, inputs.dtype)))
        qkv = ops.reshape(qkv, (-1, self.fields, 3, self.heads, self.dim // self.heads))
        query, key, value = ops.unstack(
            ops.transpose(qkv, (2, 0, 3, 1, 4)), 3
        )  # the gradient is cheaper than that of slices
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        scores = ops.cast(scores, "float32") / (self.dim / self.heads) ** 0.5
        attention = ops.softmax(self._top_k(scores), axis=-1)
        mixed = ops.matmul(ops.cast(attention, value.dtype), value)
        mixed = ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, self.fields, self.dim)) + inputs
        hidden = ops.relu(ops.matmul(mixed, ops.cast(self.ffn_in, inputs.dtype)))
        outputs = ops.matmul(hidden, ops.cast(self.ffn_out, inputs.dtype)) + mixed
        return (outputs, attention) if return_attention else outputs

    def _top_k(self, scores: Tensor) -> Tensor:
        if self.top_k is None or self.top_k >= self.fields:
            return scores
        kth = ops.stop_gradient(ops.top_k(scores, self.top_k, sorted=True)[0][..., -1:])
        return ops.where(scores >= kth, scores, -1e30)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), heads=self.heads, top_k=self.top_k)
