"""The encoder of BERT and RoBERTa, which returns the states of every layer."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm

# Keyed by HuggingFace's names for `hidden_act`; its "gelu" is exact, without approximation.
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_new": lambda x: ops.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, approximate=True),
    "relu": ops.relu,
    "leaky_relu": lambda x: ops.leaky_relu(x, negative_slope=0.01),
    "silu": ops.silu,
    "swish": ops.silu,
}


def activation_of(name: str) -> Callable[[Tensor], Tensor]:
    """Returns the activation that HuggingFace calls `name`. Raises ValueError for an unknown name."""
    if name not in _ACTIVATIONS:
        raise ValueError(f"`activation` should be one of {sorted(_ACTIVATIONS)}. Received: activation={name!r}")
    return _ACTIVATIONS[name]


@keras.saving.register_keras_serializable(package="ctrpipe")
class FeedForward(keras.layers.Layer):
    """A feed-forward network with a residual and layer normalisation.

    `output = LayerNorm(x + W2 act(W1 x + b1) + b2)`, on the last axis.

    Args:
        ffn_dim: int. Width of the hidden layer.
        activation: str. HuggingFace's name: "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "leaky_relu", "silu" or
            "swish". Defaults to "gelu".
        epsilon: float. Epsilon of the normalisation. Defaults to 1e-12.
        dropout: float. Dropout rate of the output of W2. Defaults to 0.

    Example:
        >>> states = keras.random.normal((2, 5, 8))  # (batch_size, tokens, width)
        >>> keras.ops.shape(FeedForward(ffn_dim=16)(states))
        (2, 5, 8)

    Raises:
        ValueError: the activation is unknown.
    """

    def __init__(
        self, ffn_dim: int, activation: str = "gelu", epsilon: float = 1e-12, dropout: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.ffn_dim = ffn_dim
        self.activation = activation
        self.epsilon = epsilon
        self.dropout = dropout
        self.act = activation_of(activation)
        self.widen = keras.layers.Dense(ffn_dim, dtype=self.dtype_policy, name="widen")
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.norm = LayerNorm(epsilon=epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        self.narrow = keras.layers.Dense(width, dtype=self.dtype_policy, name="narrow")
        self.widen.build(input_shape)
        self.narrow.build((*input_shape[:-1], self.ffn_dim))
        self.norm.build(input_shape)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        """Maps (..., width) to the same shape."""
        hidden = self.narrow(self.act(self.widen(inputs)))
        return self.norm(inputs + self.drop(hidden, training=training))

    def get_config(self) -> dict[str, Any]:
        names = ("ffn_dim", "activation", "epsilon", "dropout")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})


@keras.saving.register_keras_serializable(package="ctrpipe")
class SelfAttention(keras.layers.Layer):
    """BERT's self-attention, with biases, a residual and layer normalisation.

    `output = LayerNorm(x + O softmax(Q Kᵀ / sqrt(width / heads)) V)`, with padding masked in the softmax. The weight
    `qkv` concatenates the projections of queries, keys and values, (width, 3 width).

    Args:
        heads: int. Number of heads; must divide the width.
        epsilon: float. Epsilon of the normalisation. Defaults to 1e-12.
        dropout: float. Dropout rate of the attention and of the output. Defaults to 0.

    Example:
        >>> states = keras.random.normal((2, 5, 8))  # (batch_size, tokens, width)
        >>> mask = keras.ops.ones((2, 5), "bool")  # (batch_size, tokens)
        >>> keras.ops.shape(SelfAttention(heads=2)(states, mask))
        (2, 5, 8)

    Raises:
        ValueError: `heads` does not divide the width.

    References:
        Devlin et al., "BERT", 2019.
    """

    def __init__(self, heads: int, epsilon: float = 1e-12, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.epsilon = epsilon
        self.dropout = dropout
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.norm = LayerNorm(epsilon=epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        if width % self.heads:
            raise ValueError(f"`heads` should divide the width. Received: heads={self.heads}, width={width}")
        self.head_dim = width // self.heads
        self.qkv = keras.layers.Dense(3 * width, dtype=self.dtype_policy, name="qkv")
        self.out = keras.layers.Dense(width, dtype=self.dtype_policy, name="out")
        for layer in (self.qkv, self.out, self.norm):
            layer.build(input_shape)

    def call(self, inputs: Tensor, mask: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, tokens, width) to the same shape.

        Args:
            inputs: The states.
            mask: bool (batch_size, tokens), False for padding.
            training: Whether dropout is on.
        """
        tokens, width = inputs.shape[1], inputs.shape[2]
        length = ops.shape(inputs)[1] if tokens is None else tokens
        parts = ops.reshape(self.qkv(inputs), (-1, length, 3, self.heads, self.head_dim))
        query, key, value = ops.unstack(ops.transpose(parts, (2, 0, 3, 1, 4)), 3, axis=0)
        scores = ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32") / self.head_dim**0.5
        scores = ops.where(mask[:, None, None, :], scores, -1e9)
        attention = self.drop(ops.cast(ops.softmax(scores, axis=-1), value.dtype), training=training)
        mixed = ops.transpose(ops.matmul(attention, value), (0, 2, 1, 3))
        mixed = self.out(ops.reshape(mixed, (-1, length, width)))
        return self.norm(inputs + self.drop(mixed, training=training))

    def of_first(self, inputs: Tensor, mask: Tensor, training: bool | None = None) -> Tensor:
        """Returns the output of `call` for the first token only, (batch_size, width).

        For one query, the keys and values of the other tokens need not be computed:
        `q · (K x + b) = (Kᵀ q) · x + q · b`, where the last term is equal for all tokens and cancels in the softmax.
        Likewise, `Σ a (V x + b) = V Σ a x + b Σ a`.

        Args:
            inputs, mask, training: See `call`.
        """
        kernels = ops.split(ops.cast(self.qkv.kernel, inputs.dtype), 3, axis=1)
        biases = ops.split(ops.cast(self.qkv.bias, inputs.dtype), 3)
        by_head = (-1, self.heads, self.head_dim)
        of_query, of_key, of_value = (ops.reshape(kernel, by_head) for kernel in kernels)
        first = inputs[:, 0]
        query = ops.einsum("bw,whd->bhd", first, of_query) + ops.reshape(biases[0], by_head)
        asked = ops.einsum("bhd,whd->bhw", query, of_key)
        scores = ops.cast(ops.matmul(asked, ops.transpose(inputs, (0, 2, 1))), "float32") / self.head_dim**0.5
        scores = ops.where(mask[:, None], scores, -1e9)
        attention = self.drop(ops.cast(ops.softmax(scores, axis=-1), inputs.dtype), training=training)
        output = ops.einsum("bhw,whd->bhd", ops.matmul(attention, inputs), of_value)
        output += ops.sum(attention, axis=-1, keepdims=True) * ops.reshape(biases[2], by_head)
        mixed = self.out(ops.reshape(output, (-1, inputs.shape[2])))
        return self.norm(first + self.drop(mixed, training=training))

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), heads=self.heads, epsilon=self.epsilon, dropout=self.dropout)


@keras.saving.register_keras_serializable(package="ctrpipe")
class TextEncoder(keras.layers.Layer):
    """Embeds tokens and passes them through the encoder layers of BERT or RoBERTa.

    `h_0 = LayerNorm(token + position + segment)`, `h_l = FeedForward(SelfAttention(h_{l-1}))`; the output is all h_l.

    Args:
        vocabulary_size: int. Number of rows of the token table.
        layers: int. Number of encoder layers. Defaults to 12.
        width: int. Width of a state. Defaults to 768.
        heads: int. Number of attention heads; must divide the width. Defaults to 12.
        ffn_dim: int. Width of the feed-forward networks. Defaults to 3072.
        positions: int. Number of rows of the position table. Defaults to 512.
        segments: int. Number of rows of the segment table; larger segment ids use its last row (RoBERTa has one row).
            Defaults to 2.
        padding_id: int. The padding token, which is masked. Defaults to 0.
        first_position: int. The position of the first token: 0, or RoBERTa's padding_id + 1. Defaults to 0.
        activation: str. HuggingFace's `hidden_act`. Defaults to "gelu".
        epsilon: float. Epsilon of every normalisation. Defaults to 1e-12.
        dropout: float. Dropout rate in embeddings, attention and feed-forward networks. Defaults to 0.1.

    Example:
        >>> encoder = TextEncoder(vocabulary_size=30, layers=2, width=8, heads=2, ffn_dim=16, positions=10)
        >>> tokens = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]])  # (batch_size, tokens); 0 is padding
        >>> [keras.ops.shape(states) for states in encoder(tokens)]  # layers + 1 times (batch_size, tokens, width)
        [(2, 4, 8), (2, 4, 8), (2, 4, 8)]

    Raises:
        ValueError: a size is not positive, the activation is unknown, or a text has more tokens than positions.

    References:
        Devlin et al., "BERT", 2019; Liu et al., "RoBERTa", 2019.
    """

    def __init__(
        self,
        vocabulary_size: int,
        layers: int = 12,
        width: int = 768,
        heads: int = 12,
        ffn_dim: int = 3072,
        positions: int = 512,
        segments: int = 2,
        padding_id: int = 0,
        first_position: int = 0,
        activation: str = "gelu",
        epsilon: float = 1e-12,
        dropout: float = 0.1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_positive(vocabulary_size=vocabulary_size, layers=layers, width=width, heads=heads)
        require_positive(ffn_dim=ffn_dim, positions=positions, segments=segments)
        self.vocabulary_size = vocabulary_size
        self.layers = layers
        self.width = width
        self.heads = heads
        self.ffn_dim = ffn_dim
        self.positions = positions
        self.segments = segments
        self.padding_id = padding_id
        self.first_position = first_position
        self.activation = activation
        self.epsilon = epsilon
        self.dropout = dropout

    def build(self, input_shape: Shape | None = None) -> None:
        # Sublayers are created here, not in the constructor: the precision may change in between.
        policy, rate = self.dtype_policy, self.dropout
        self.norm = LayerNorm(epsilon=self.epsilon, dtype=policy, name="embedding_norm")
        self.drop = keras.layers.Dropout(rate, dtype=policy)
        self.attention = [
            SelfAttention(self.heads, self.epsilon, rate, dtype=policy, name=f"attention_{index}")
            for index in range(self.layers)
        ]
        self.feed_forward = [
            FeedForward(self.ffn_dim, self.activation, self.epsilon, rate, dtype=policy, name=f"feed_forward_{index}")
            for index in range(self.layers)
        ]
        self.token_scale = None
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        for name, rows in (("token", self.vocabulary_size), ("position", self.positions), ("segment", self.segments)):
            weight = self.add_weight(name=f"{name}_table", shape=(rows, self.width), initializer=initializer)
            setattr(self, f"{name}_table", weight)
        shape = (None, None, self.width)
        parts: list[keras.layers.Layer] = [self.norm, *self.attention, *self.feed_forward]
        for layer in parts:
            layer.build(shape)

    def mask(self, tokens: Tensor) -> Tensor:
        """Returns which tokens are not padding, bool (batch_size, tokens)."""
        return ops.not_equal(tokens, self.padding_id)

    def embed(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        training: bool | None = None,
        token_rows: Tensor | None = None,
    ) -> Tensor:
        """Returns the embeddings of the tokens, the states before the first layer, (batch_size, tokens, width).

        Args:
            tokens: int32 (batch_size, tokens).
            segments: int32 (batch_size, tokens); None if all tokens are in the first segment.
            training: Whether dropout is on.
            token_rows: The output of `embed_tokens`, if the caller has it, to differentiate with respect to it.
        """
        length = tokens.shape[1] if tokens.shape[1] is not None else ops.shape(tokens)[1]
        if isinstance(length, int) and length + self.first_position > self.positions:
            room = self.positions - self.first_position
            raise ValueError(f"The encoder has positions for {room} tokens. Received: {length} tokens")
        positions = ops.arange(length, dtype="int32") + self.first_position
        if self.first_position:
            positions = ops.where(self.mask(tokens), positions[None, :], self.first_position - 1)
        rows = self.embed_tokens(tokens) if token_rows is None else token_rows
        rows = rows + ops.cast(ops.take(self.position_table, positions, axis=0), self.compute_dtype)
        if segments is None:
            rows = rows + ops.cast(self.segment_table[0], self.compute_dtype)
        else:
            chosen = ops.minimum(segments, self.segments - 1)
            rows = rows + ops.cast(ops.take(self.segment_table, chosen, axis=0), self.compute_dtype)
        return self.drop(self.norm(rows), training=training)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """Returns the tokens' rows of the token table, without position, segment and normalisation."""
        rows = ops.cast(ops.take(self.token_table, tokens, axis=0), self.compute_dtype)
        return rows if self.token_scale is None else rows / ops.take(self.token_scale, tokens, axis=0)

    def call(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        training: bool | None = None,
        token_rows: Tensor | None = None,
    ) -> list[Tensor]:
        """Returns the states of the embeddings and of every layer: layers + 1 tensors (batch_size, tokens, width).

        Args:
            tokens, segments, training, token_rows: See `embed`.
        """
        mask = self.mask(tokens)
        states = [self.embed(tokens, segments, training, token_rows)]
        for attention, feed_forward in zip(self.attention, self.feed_forward, strict=True):
            attended = attention(states[-1], mask, training=training)
            states.append(feed_forward(attended, training=training))
        return states

    def quantize(self, mode: str, type_check: bool = True, config: Any = None) -> None:
        """Quantizes the token table and the kernels to int8, with a scale for every token and every output.

        For a model that is not trained further. `mode` and `config` are as in keras.layers.Dense.quantize.
        """
        rows, scale = keras.quantizers.abs_max_quantize(self.token_table, axis=-1, to_numpy=True)
        del self.token_table
        shapes = {"token_table": (rows, "int8"), "token_scale": (scale, self.variable_dtype)}
        for name, (values, dtype) in shapes.items():
            weight = self.add_weight(name=name, shape=values.shape, initializer="zeros", dtype=dtype, trainable=False)
            weight.assign(values)
            setattr(self, name, weight)
        for attention, feed_forward in zip(self.attention, self.feed_forward, strict=True):
            for dense in (attention.qkv, attention.out, feed_forward.widen, feed_forward.narrow):
                dense.quantize(mode, config=config)

    def get_config(self) -> dict[str, Any]:
        names = ["vocabulary_size", "layers", "width", "heads", "ffn_dim", "positions", "segments", "padding_id"]
        names += ["first_position", "activation", "epsilon", "dropout"]
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})
