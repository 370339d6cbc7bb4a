"""The encoder of BERT and RoBERTa: the states of every layer."""

from typing import Any

import keras
from keras import ops

from models.tensors import Shape, Tensor

# HuggingFace's names of `hidden_act`. Its "gelu" is the exact one.
_ACTIVATIONS = {
    "gelu": lambda x: ops.gelu(x, approximate=False),
    "gelu_new": lambda x: ops.gelu(x, approximate=True),
    "gelu_pytorch_tanh": lambda x: ops.gelu(x, approximate=True),
    "relu": ops.relu,
    "silu": ops.silu,
    "swish": ops.silu,
}


def activation_of(name: str):
    """The function that HuggingFace calls `name`. Raises ValueError for an unknown one."""
    if name not in _ACTIVATIONS:
        raise ValueError(f"`activation` should be one of {sorted(_ACTIVATIONS)}. Received: activation={name!r}")
    return _ACTIVATIONS[name]


@keras.saving.register_keras_serializable(package="ctrpipe")
class FeedForward(keras.layers.Layer):
    """LayerNorm(x + W2 act(W1 x + b1) + b2), on the last axis.

    Args:
        ffn_dim: Width of the hidden layer.
        activation: A HuggingFace name: gelu, gelu_new, relu, silu.
        epsilon: Of the normalisation.
        dropout: Rate on the output of W2.
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
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        self.narrow = keras.layers.Dense(width, dtype=self.dtype_policy, name="narrow")
        self.widen.build(input_shape)
        self.narrow.build((*input_shape[:-1], self.ffn_dim))
        self.norm.build(input_shape)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        hidden = self.narrow(self.act(self.widen(inputs)))
        return self.norm(inputs + self.drop(hidden, training=training))

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        names = ("ffn_dim", "activation", "epsilon", "dropout")
        config.update({name: getattr(self, name) for name in names})
        return config


@keras.saving.register_keras_serializable(package="ctrpipe")
class SelfAttention(keras.layers.Layer):
    """LayerNorm(x + O softmax(Q Kᵀ / sqrt(width / heads)) V): BERT's, with biases; masked tokens are no keys.

    Args:
        heads: Must divide the width.
        epsilon: Of the normalisation.
        dropout: Rate on the attention and on the output.

    Weights: `qkv` holds the projections of queries, keys and values side by side, (width, 3 width).
    """

    def __init__(self, heads: int, epsilon: float = 1e-12, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.heads = heads
        self.epsilon = epsilon
        self.dropout = dropout
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.norm = keras.layers.LayerNormalization(epsilon=epsilon, dtype=self.dtype_policy, name="norm")

    def build(self, input_shape: Shape) -> None:
        width = input_shape[-1]
        if width % self.heads:
            raise ValueError(f"`heads` should divide the width. Received: heads={self.heads}, width={width}")
        self.head_dim = width // self.heads
        self.qkv = keras.layers.Dense(3 * width, dtype=self.dtype_policy, name="qkv")
        self.out = keras.layers.Dense(width, dtype=self.dtype_policy, name="out")
        for layer in (self.qkv, self.out, self.norm):
            layer.build(input_shape)

    def call(self, inputs, mask, training=None):
        """(batch_size, tokens, width), mask bool (batch_size, tokens) -> (batch_size, tokens, width)."""
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

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        config.update(heads=self.heads, epsilon=self.epsilon, dropout=self.dropout)
        return config


@keras.saving.register_keras_serializable(package="ctrpipe")
class TextEncoder(keras.layers.Layer):
    """BERT's or RoBERTa's encoder.

    Args:
        vocabulary_size: Rows of the token table.
        layers: Number of encoder layers.
        width: Of a state.
        heads: Attention heads, a divisor of the width.
        ffn_dim: Width of the feed-forward networks.
        positions: Rows of the position table.
        segments: Rows of the segment table; segments beyond the last row take the last (RoBERTa has one row).
        padding_id: The token that is masked.
        first_position: The position of the first token: 0, or RoBERTa's padding_id + 1.
        activation: HuggingFace's `hidden_act`.
        epsilon: Of every normalisation.
        dropout: Rate in embeddings, attention and feed-forward networks.

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
        sizes = {"vocabulary_size": vocabulary_size, "layers": layers, "width": width, "heads": heads}
        for name, size in (sizes | {"ffn_dim": ffn_dim, "positions": positions, "segments": segments}).items():
            if size < 1:
                raise ValueError(f"`{name}` should be positive. Received: {name}={size}")
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
        # Here, so that the precision can be changed until there are weights.
        policy, rate = self.dtype_policy, self.dropout
        self.norm = keras.layers.LayerNormalization(epsilon=self.epsilon, dtype=policy, name="embedding_norm")
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
        for layer in (self.norm, *self.attention, *self.feed_forward):
            layer.build(shape)

    def mask(self, tokens):
        """Which tokens are none of padding, bool (batch_size, tokens)."""
        return ops.not_equal(tokens, self.padding_id)

    def embed(self, tokens, segments=None, training=None):
        """int32 (batch_size, tokens), twice -> (batch_size, tokens, width). Without segments all are the first."""
        length = tokens.shape[1] if tokens.shape[1] is not None else ops.shape(tokens)[1]
        if isinstance(length, int) and length + self.first_position > self.positions:
            room = self.positions - self.first_position
            raise ValueError(f"The encoder has positions for {room} tokens. Received: {length} tokens")
        positions = ops.arange(length, dtype="int32") + self.first_position
        if self.first_position:
            positions = ops.where(self.mask(tokens), positions[None, :], self.first_position - 1)
        rows = self.embed_words(tokens) + ops.cast(ops.take(self.position_table, positions, axis=0), self.compute_dtype)
        if segments is None:
            rows = rows + ops.cast(self.segment_table[0], self.compute_dtype)
        else:
            chosen = ops.minimum(segments, self.segments - 1)
            rows = rows + ops.cast(ops.take(self.segment_table, chosen, axis=0), self.compute_dtype)
        return self.drop(self.norm(rows), training=training)

    def embed_words(self, tokens):
        """The tokens' rows of the table alone, without position, segment or normalisation."""
        rows = ops.cast(ops.take(self.token_table, tokens, axis=0), self.compute_dtype)
        return rows if self.token_scale is None else rows / ops.take(self.token_scale, tokens, axis=0)

    def call(self, tokens, segments=None, training=None):
        """The states of the embeddings and of every layer: layers + 1 tensors (batch_size, tokens, width)."""
        mask = self.mask(tokens)
        states = [self.embed(tokens, segments, training)]
        for attention, feed_forward in zip(self.attention, self.feed_forward, strict=True):
            attended = attention(states[-1], mask, training=training)
            states.append(feed_forward(attended, training=training))
        return states

    def quantize(self, mode, type_check=True, config=None):
        """Makes the token table and the kernels int8, with a scale for every token and every output, for a model that
        is trained no further. `mode` and `config` are those of Keras's Dense."""
        words, scale = keras.quantizers.abs_max_quantize(self.token_table, axis=-1, to_numpy=True)
        del self.token_table
        shapes = {"token_table": (words, "int8"), "token_scale": (scale, self.variable_dtype)}
        for name, (values, dtype) in shapes.items():
            weight = self.add_weight(name=name, shape=values.shape, initializer="zeros", dtype=dtype, trainable=False)
            weight.assign(values)
            setattr(self, name, weight)
        for attention, feed_forward in zip(self.attention, self.feed_forward, strict=True):
            for dense in (attention.qkv, attention.out, feed_forward.widen, feed_forward.narrow):
                dense.quantize(mode, config=config)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        names = ("vocabulary_size", "layers", "width", "heads", "ffn_dim", "positions", "segments", "padding_id")
        names += ("first_position", "activation", "epsilon", "dropout")
        config.update({name: getattr(self, name) for name in names})
        return config
