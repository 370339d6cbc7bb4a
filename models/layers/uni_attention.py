"""Uni-attention: features attend to a text, which never attends to them."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm
from ctrpipe.models.layers.text_encoder import FeedForward


@keras.saving.register_keras_serializable(package="ctrpipe")
class UniAttention(keras.layers.Layer):
    """Attention of queries to a text's states, with additive scores.

    `U = V softmax(v_aᵀ tanh(W_a [Q; K]))` with `Q = W_q x + b_q`, `K = W_k Y + b_k`, `V = W_v Y + b_v`.

    The order of computation differs from the paper's, with the same result. The two halves of W_a are first multiplied
    with W_q and W_k: no state is projected to its full width. The states are pooled before W_v is applied, because a
    query's weights sum to one. The b_i of Algorithm 1 is left out: it shifts all scores of a query equally, and the
    softmax cancels the shift.

    Args:
        attention_dim: int. Width d_a of the scores' hidden layer. Defaults to 64, as in the paper.

    Example:
        >>> queries = keras.random.normal((2, 1, 6))  # (batch_size, queries, d_X)
        >>> states = keras.random.normal((2, 5, 8))  # (batch_size, tokens, d_Y)
        >>> mask = keras.ops.ones((2, 5), "bool")  # (batch_size, tokens)
        >>> keras.ops.shape(UniAttention(attention_dim=4)(queries, states, mask))
        (2, 1, 6)

    Raises:
        ValueError: `attention_dim` is not positive.

    References:
        Wang et al., "BERT4CTR", 2023, equation 3, Algorithm 1 and appendix A.4.
    """

    def __init__(self, attention_dim: int = 64, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(attention_dim=attention_dim)
        self.attention_dim = attention_dim

    def build(self, queries_shape: Shape, states_shape: Shape) -> None:
        query_dim, state_dim = queries_shape[-1], states_shape[-1]
        shapes = {
            "query": (query_dim, query_dim),
            "key": (state_dim, state_dim),
            "value": (state_dim, query_dim),
            "align": (query_dim + state_dim, self.attention_dim),
        }
        for name, shape in shapes.items():
            setattr(self, f"{name}_kernel", self.add_weight(name=f"{name}_kernel", shape=shape))
            setattr(self, f"{name}_bias", self.add_weight(name=f"{name}_bias", shape=shape[1:], initializer="zeros"))
        self.score = self.add_weight(name="score", shape=(self.attention_dim,), initializer=_score_initializer())
        self.query_dim = query_dim
        self.folded: list[Tensor] | None = None

    def fold(self) -> None:
        """Precomputes the products of W_q and W_k with W_a, for a model whose weights no longer change."""
        self.folded = [ops.convert_to_tensor(value) for value in self._fold()]

    def _fold(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the products of W_a with W_q and with W_k, and their common bias."""
        from_query, from_key = self.align_kernel[: self.query_dim], self.align_kernel[self.query_dim :]
        query = ops.matmul(self.query_kernel, from_query)
        key = ops.matmul(self.key_kernel, from_key)
        bias = ops.matmul(self.query_bias[None], from_query) + ops.matmul(self.key_bias[None], from_key)
        return query, key, bias[0] + self.align_bias

    def call(self, queries: Tensor, states: Tensor, mask: Tensor, return_attention: bool = False) -> Tensor:
        """Returns the attended values of the queries, (batch_size, queries, d_X).

        Args:
            queries: (batch_size, queries, d_X).
            states: (batch_size, tokens, d_Y).
            mask: bool (batch_size, tokens), False for padding.
            return_attention: Whether to also return the weights, float32 (batch_size, queries, tokens).
        """
        query, key, bias = (ops.cast(value, self.compute_dtype) for value in self.folded or self._fold())
        hidden = ops.matmul(queries, query)[:, :, None, :] + (ops.matmul(states, key) + bias)[:, None, :, :]
        scores = ops.cast(ops.matmul(ops.tanh(hidden), ops.cast(self.score, hidden.dtype)[:, None]), "float32")[..., 0]
        attention = ops.softmax(ops.where(mask[:, None, :], scores, -1e9), axis=-1)
        attention = ops.where(mask[:, None, :], attention, 0.0)
        pooled = ops.matmul(ops.cast(attention, states.dtype), states)
        outputs = ops.matmul(pooled, ops.cast(self.value_kernel, pooled.dtype)) + ops.cast(
            self.value_bias, pooled.dtype
        )
        return (outputs, attention) if return_attention else outputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "attention_dim": self.attention_dim}


def _score_initializer() -> keras.initializers.Initializer:
    return keras.initializers.RandomNormal(stddev=0.02)


@keras.saving.register_keras_serializable(package="ctrpipe")
class UniAttentionLayer(keras.layers.Layer):
    """The features' counterpart of an encoder layer: uni-attention and a feed-forward network.

    `u = LayerNorm(x + UniAttention(x, Y))`, `output = FeedForward(u)`.

    Args:
        attention_dim: int. Width d_a of the scores' hidden layer. Defaults to 64.
        ffn_dim: int. Width of the feed-forward network. Defaults to 2048.
        activation: str. HuggingFace's name, as in the encoder. Defaults to "gelu".
        epsilon: float. Epsilon of the normalisations. Defaults to 1e-12.
        dropout: float. Dropout rate of both outputs. Defaults to 0.

    Example:
        >>> queries = keras.random.normal((2, 1, 6))  # (batch_size, queries, d_X)
        >>> states = keras.random.normal((2, 5, 8))  # (batch_size, tokens, d_Y)
        >>> mask = keras.ops.ones((2, 5), "bool")  # (batch_size, tokens)
        >>> keras.ops.shape(UniAttentionLayer(attention_dim=4, ffn_dim=16)(queries, states, mask))
        (2, 1, 6)

    Raises:
        ValueError: `attention_dim` is not positive, or the activation is unknown.

    References:
        Wang et al., "BERT4CTR", 2023, section 3.2.3.
    """

    def __init__(
        self,
        attention_dim: int = 64,
        ffn_dim: int = 2048,
        activation: str = "gelu",
        epsilon: float = 1e-12,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.attention_dim = attention_dim
        self.ffn_dim = ffn_dim
        self.activation = activation
        self.epsilon = epsilon
        self.dropout = dropout
        policy = self.dtype_policy
        self.attention = UniAttention(attention_dim, dtype=policy, name="attention")
        self.norm = LayerNorm(epsilon=epsilon, dtype=policy, name="norm")
        self.drop = keras.layers.Dropout(dropout, dtype=policy)
        self.feed_forward = FeedForward(ffn_dim, activation, epsilon, dropout, dtype=policy, name="feed_forward")

    def build(self, queries_shape: Shape, states_shape: Shape) -> None:
        self.attention.build(queries_shape, states_shape)
        self.norm.build(queries_shape)
        self.feed_forward.build(queries_shape)

    def call(self, queries: Tensor, states: Tensor, mask: Tensor, training: bool | None = None) -> Tensor:
        """Returns the features' next states, (batch_size, queries, d_X).

        Args:
            queries, states, mask: See UniAttention.
            training: Whether dropout is on.
        """
        attended = self.drop(self.attention(queries, states, mask), training=training)
        return self.feed_forward(self.norm(queries + attended), training=training)

    def get_config(self) -> dict[str, Any]:
        names = ("attention_dim", "ffn_dim", "activation", "epsilon", "dropout")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})
