"""A block of RankMixer: token mixing without weights, and a feed-forward network of each token."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm


@keras.saving.register_keras_serializable(package="ctrpipe")
class TokenMixer(keras.layers.Layer):
    """Mixes tokens by exchanging their heads, then applies to each token a feed-forward network of its own.

    `s_h = [x_1^h, ..., x_T^h]` for each of T heads, `u = LayerNorm(s + x)`, `output = LayerNorm(FFN_t(u_t) + u_t)` with
    `FFN_t(u) = W2_t gelu(W1_t u + b1_t) + b2_t`. With experts, the network of a token is `Σ_e relu(r_te u + c_te)
    FFN_te(u)`, with sparse gates.

    Args:
        ffn_dim: int. Width of the hidden layers. Defaults to 64.
        experts: int. Number of experts of each token; 1 for a network without gates. Defaults to 1.
        dropout: float. Dropout rate of the feed-forward networks' outputs. Defaults to 0.

    Example:
        >>> keras.ops.shape(TokenMixer(ffn_dim=8)(keras.random.normal((2, 3, 6))))  # (batch_size, tokens, dim)
        (2, 3, 6)

    Raises:
        ValueError: a size is not positive, or the number of tokens does not divide the width.

    References:
        Zhu et al., "RankMixer: Scaling Up Ranking Models in Industrial Recommenders", 2025, section 3.3 and 3.4.
    """

    def __init__(self, ffn_dim: int = 64, experts: int = 1, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(ffn_dim=ffn_dim, experts=experts)
        policy = self.dtype_policy
        self.ffn_dim = ffn_dim
        self.experts = experts
        self.dropout = dropout
        self.norm_mixed = LayerNorm(epsilon=1e-6, dtype=policy, name="norm_mixed")
        self.norm_ffn = LayerNorm(epsilon=1e-6, dtype=policy, name="norm_ffn")
        self.drop = keras.layers.Dropout(dropout, dtype=policy) if dropout else None

    def build(self, input_shape: Shape) -> None:
        tokens, dim = input_shape[1:]
        if dim % tokens:
            raise ValueError(f"`token_dim` should be divisible by `tokens`. Received: {dim} and {tokens}")
        hidden = self.experts * self.ffn_dim
        limit = (6 / (dim + self.ffn_dim)) ** 0.5  # Glorot's for one network
        uniform = keras.initializers.RandomUniform(-limit, limit)
        self.first = self.add_weight(name="first", shape=(tokens, dim, hidden), initializer=uniform)
        self.first_bias = self.add_weight(name="first_bias", shape=(tokens, hidden), initializer="zeros")
        self.second = self.add_weight(name="second", shape=(tokens, hidden, dim), initializer=uniform)
        self.second_bias = self.add_weight(name="second_bias", shape=(tokens, self.experts, dim), initializer="zeros")
        self.router = self.router_bias = None
        if self.experts > 1:
            self.router = self.add_weight(
                name="router", shape=(tokens, dim, self.experts), initializer="glorot_uniform"
            )
            self.router_bias = self.add_weight(name="router_bias", shape=(tokens, self.experts), initializer="ones")
        self.norm_mixed.build(input_shape)
        self.norm_ffn.build(input_shape)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, tokens, dim) to the same shape."""
        tokens, dim = inputs.shape[1:]
        heads = ops.reshape(inputs, (-1, tokens, tokens, dim // tokens))
        mixed = ops.reshape(ops.transpose(heads, (0, 2, 1, 3)), (-1, tokens, dim))
        states = self.norm_mixed(mixed + inputs)
        hidden = ops.einsum("btd,tdk->btk", states, self.first) + self.first_bias
        hidden = ops.gelu(hidden, approximate=False)
        if self.router is None:
            outputs = ops.einsum("btk,tkd->btd", hidden, self.second) + self.second_bias[:, 0]
        else:
            gates = self.gates(states)
            by_expert = ops.reshape(hidden, (-1, tokens, self.experts, self.ffn_dim)) * gates[..., None]
            hidden = ops.reshape(by_expert, (-1, tokens, self.experts * self.ffn_dim))
            outputs = ops.einsum("btk,tkd->btd", hidden, self.second)
            outputs = outputs + ops.einsum("bte,ted->btd", gates, self.second_bias)
        if self.drop is not None:
            outputs = self.drop(outputs, training=training)
        return self.norm_ffn(outputs + states)

    def gates(self, states: Tensor) -> Tensor:
        """Returns the weights of each token's experts, (batch_size, tokens, experts), many of them zero."""
        return ops.relu(ops.einsum("btd,tde->bte", states, self.router) + self.router_bias)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), ffn_dim=self.ffn_dim, experts=self.experts, dropout=self.dropout)
