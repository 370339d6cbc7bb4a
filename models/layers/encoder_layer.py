"""The encoder layer of the Transformer, HeteroAtt and Hiformer, which differ in their projections."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm
from ctrpipe.models.layers.softmax_product import softmax_product

PROJECTIONS = ("shared", "feature", "composite")


@keras.saving.register_keras_serializable(package="ctrpipe")
class EncoderLayer(keras.layers.Layer):
    """Self-attention over tokens, then a feed-forward network, both with a residual and layer normalisation.

    `o = softmax(Q Kᵀ / sqrt(d_k)) V O`, `u = LayerNorm(e + o)`, `output = LayerNorm(u + GELU(u W1 + b1) W2 + b2)`.

    A weight that differs per token has the tokens on its first axis. With ranks, the weights `*_left` (L·d, H·r) and
    `*_right` (H, r, L·d_k) hold L^h and (R^h)ᵀ of all heads.

    Args:
        projection: str. "shared": Q, K, V, O and the feed-forward network are the same for all tokens (Transformer).
            "feature": every token has its own (HeteroAtt, equations 1 to 4). "composite": Q, K and V are projections of
            all tokens together, per head; O and the feed-forward network are as in "feature" (Hiformer, equations 5
            and 6). Defaults to "shared".
        heads: int. Number H of heads. Defaults to 4.
        key_dim: int. Width d_k of a head's queries and keys. Defaults to 16.
        value_dim: int. Width d_v of a head's values. Defaults to 64.
        ffn_dim: int. Width d_f of the feed-forward network's hidden layer. Defaults to 512.
        qk_rank, v_rank: int. Ranks of the composite projections `K̂^h = L^h (R^h)ᵀ`, equation 7; None for full
            matrices. Default to None.
        queries: int. Number of tokens, counted from the last, that are queries and are returned (section 3.5.2); None
            for all tokens. Defaults to None.
        dropout: float. Dropout rate after the attention and after the feed-forward network. Defaults to 0.

    Example:
        >>> tokens = keras.random.normal((2, 5, 8))  # (batch_size, tokens, dim)
        >>> layer = EncoderLayer("composite", heads=2, key_dim=3, value_dim=4, ffn_dim=16, qk_rank=2, queries=1)
        >>> keras.ops.shape(layer(tokens))  # (batch_size, queries, dim)
        (2, 1, 8)

    Raises:
        ValueError: `projection` is unknown, a size is not positive, or there are ranks without composite projections.

    References:
        Gui et al., "Hiformer: Heterogeneous Feature Interactions Learning with Transformers for Recommender Systems",
        2023, sections 3.3 to 3.5.
    """

    def __init__(
        self,
        projection: str = "shared",
        heads: int = 4,
        key_dim: int = 16,
        value_dim: int = 64,
        ffn_dim: int = 512,
        qk_rank: int | None = None,
        v_rank: int | None = None,
        queries: int | None = None,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if projection not in PROJECTIONS:
            raise ValueError(f"`projection` should be one of {PROJECTIONS}. Received: projection={projection!r}")
        require_positive(heads=heads, key_dim=key_dim, value_dim=value_dim, ffn_dim=ffn_dim)
        require_positive(qk_rank=qk_rank, v_rank=v_rank, queries=queries)
        if projection != "composite" and (qk_rank or v_rank):
            raise ValueError(f"Ranks belong to composite projections. Received: projection={projection!r}")
        self.projection = projection
        self.heads = heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.ffn_dim = ffn_dim
        self.qk_rank = qk_rank
        self.v_rank = v_rank
        self.queries = queries
        self.dropout = dropout
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.norm_attention = LayerNorm(epsilon=1e-6, dtype=self.dtype_policy)
        self.norm_ffn = LayerNorm(epsilon=1e-6, dtype=self.dtype_policy)

    def build(self, input_shape: Shape) -> None:
        self.tokens, self.dim = input_shape[1], input_shape[2]
        self.outputs = min(self.queries or self.tokens, self.tokens)
        for name, width, rank in (
            ("query", self.key_dim, self.qk_rank),
            ("key", self.key_dim, self.qk_rank),
            ("value", self.value_dim, self.v_rank),
        ):
            self._add_projection(name, self.outputs if name == "query" else self.tokens, width, rank)
        own = () if self.projection == "shared" else (self.outputs,)
        dense: dict[str, Shape] = {
            "output": (self.heads * self.value_dim, self.dim),
            "ffn_in": (self.dim, self.ffn_dim),
            "ffn_out": (self.ffn_dim, self.dim),
        }
        for name, shape in dense.items():
            setattr(self, f"{name}_kernel", self._weight(f"{name}_kernel", (*own, *shape), *shape))
        for name, width in (("ffn_in", self.ffn_dim), ("ffn_out", self.dim)):
            bias = self.add_weight(name=f"{name}_bias", shape=(*own, width), initializer="zeros")
            setattr(self, f"{name}_bias", bias)
        self.norm_attention.build((None, self.outputs, self.dim))
        self.norm_ffn.build((None, self.outputs, self.dim))

    def _add_projection(self, name: str, tokens: int, width: int, rank: int | None) -> None:
        """Adds the weights of a projection to `tokens` vectors of `width` in every head."""
        everything = self.tokens * self.dim
        shapes: dict[str, Shape]
        if self.projection == "shared":
            shapes = {"kernel": (self.dim, self.heads * width)}
        elif self.projection == "feature":
            shapes = {"kernel": (tokens, self.dim, self.heads * width)}
        elif rank is None:
            shapes = {"kernel": (everything, self.heads * tokens * width)}
        else:
            shapes = {"left": (everything, self.heads * rank), "right": (self.heads, rank, tokens * width)}
        for kind, shape in shapes.items():
            weight = self._weight(
                f"{name}_{kind}", shape, shape[-2], shape[-1] // (1 if kind == "right" else self.heads)
            )
            setattr(self, f"{name}_{kind}", weight)

    def _weight(self, name: str, shape: Shape, fan_in: int, fan_out: int) -> keras.Variable:
        """Adds a weight with Glorot's limit for one matrix; Keras would treat tokens and heads as a receptive field."""
        limit = (6 / (fan_in + fan_out)) ** 0.5
        return self.add_weight(name=name, shape=shape, initializer=keras.initializers.RandomUniform(-limit, limit))

    def call(self, inputs: Tensor, training: bool | None = None, return_attention: bool = False) -> Tensor:
        """Maps (batch_size, tokens, dim) to (batch_size, queries or tokens, dim).

        With `return_attention`, also returns the attention, float32 (batch_size, heads, queries or tokens, tokens).
        """
        queries = inputs[:, -self.outputs :]
        query = self._project("query", queries, inputs, self.outputs, self.key_dim)
        key = self._project("key", inputs, inputs, self.tokens, self.key_dim)
        value = self._project("value", inputs, inputs, self.tokens, self.value_dim)
        scores = ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32") / self.key_dim**0.5
        mixed = ops.transpose(softmax_product(scores, value), (0, 2, 1, 3))
        mixed = ops.reshape(mixed, (-1, self.outputs, self.heads * self.value_dim))
        attended = self.drop(self._per_token(mixed, self.output_kernel), training=training)
        attended = self.norm_attention(queries + attended)
        hidden = ops.gelu(self._per_token(attended, self.ffn_in_kernel) + self.ffn_in_bias, approximate=False)
        hidden = self.drop(self._per_token(hidden, self.ffn_out_kernel) + self.ffn_out_bias, training=training)
        outputs = self.norm_ffn(attended + hidden)
        return (outputs, ops.softmax(scores, axis=-1)) if return_attention else outputs

    def _project(self, name: str, tokens: Tensor, everything: Tensor, count: int, width: int) -> Tensor:
        """Returns the queries, keys or values, (batch_size, heads, count, width)."""
        if self.projection != "composite":
            projected = self._per_token(tokens, getattr(self, f"{name}_kernel"))
            return ops.transpose(ops.reshape(projected, (-1, count, self.heads, width)), (0, 2, 1, 3))
        flat = ops.reshape(everything, (-1, self.tokens * self.dim))
        if (self.v_rank if name == "value" else self.qk_rank) is None:
            projected = ops.matmul(flat, getattr(self, f"{name}_kernel"))
        else:
            right = getattr(self, f"{name}_right")
            narrow = ops.reshape(ops.matmul(flat, getattr(self, f"{name}_left")), (-1, self.heads, right.shape[1]))
            projected = ops.einsum("nhr,hrw->nhw", narrow, right)
        return ops.reshape(projected, (-1, self.heads, count, width))

    def _per_token(self, tokens: Tensor, kernel: Tensor) -> Tensor:
        return ops.matmul(tokens, kernel) if self.projection == "shared" else ops.einsum("nld,ldk->nlk", tokens, kernel)

    def value_projections(self) -> Tensor:
        """Returns V̂^h of every head, (heads, tokens * dim, tokens * value_dim).

        Raises:
            ValueError: the projections are not composite.
        """
        if self.projection != "composite":
            raise ValueError(f"Only composite projections have V̂. Received: projection={self.projection!r}")
        everything, width = self.tokens * self.dim, self.tokens * self.value_dim
        if self.v_rank is None:
            return ops.transpose(ops.reshape(self.value_kernel, (everything, self.heads, width)), (1, 0, 2))
        left = ops.transpose(ops.reshape(self.value_left, (everything, self.heads, self.v_rank)), (1, 0, 2))
        return ops.matmul(left, self.value_right)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], min(self.queries or input_shape[1], input_shape[1]), input_shape[2])

    def get_config(self) -> dict[str, Any]:
        names = ("projection", "heads", "key_dim", "value_dim", "ffn_dim", "qk_rank", "v_rank", "queries", "dropout")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})
