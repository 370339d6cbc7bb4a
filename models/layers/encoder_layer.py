"""One encoder layer of the Transformer, HeteroAtt and Hiformer: they differ in how tokens are projected."""

from typing import Any

import keras
from keras import ops

from models.tensors import Shape, Tensor

PROJECTIONS = ("shared", "feature", "composite")


@keras.saving.register_keras_serializable(package="ctrpipe")
class EncoderLayer(keras.layers.Layer):
    """o = softmax(Q Kᵀ / sqrt(d_k)) V O; u = LayerNorm(e + o); output LayerNorm(u + GELU(u W1 + b1) W2 + b2).

    Args:
        projection: `shared`: Q, K, V, O and the feed-forward network are the same for all tokens (Transformer).
            `feature`: every token has its own (HeteroAtt, equations 1 to 4). `composite`: Q, K and V are projections of
            all tokens together, per head; O and the feed-forward network as in `feature` (Hiformer, equations 5, 6).
        heads: H.
        key_dim: d_k, of one head.
        value_dim: d_v, of one head.
        ffn_dim: d_f.
        qk_rank, v_rank: Ranks of the composite projections K̂^h = L^h (R^h)ᵀ (equation 7), or None for full matrices.
        queries: Only the last `queries` tokens are queries and are returned (section 3.5.2), or None for all.
        dropout: Rate after the attention and after the feed-forward network.

    Weights: a per-token weight has the token as its first axis; `*_left` (L·d, H·r) and `*_right` (H, r, L·d_k) are
    L^h and (R^h)ᵀ of all heads.

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
        sizes = {"heads": heads, "key_dim": key_dim, "value_dim": value_dim, "ffn_dim": ffn_dim}
        optional = {"qk_rank": qk_rank, "v_rank": v_rank, "queries": queries}
        for name, value in (sizes | {name: value for name, value in optional.items() if value is not None}).items():
            if value < 1:
                raise ValueError(f"`{name}` should be positive. Received: {name}={value}")
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
        self.norm_attention = keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy)
        self.norm_ffn = keras.layers.LayerNormalization(epsilon=1e-6, dtype=self.dtype_policy)

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
        dense = {
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
        """Projects to `tokens` vectors of `width` in every head."""
        everything = self.tokens * self.dim
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

    def _weight(self, name: str, shape, fan_in: int, fan_out: int):
        """Glorot by the fans of one matrix: Keras would count the axes of tokens and heads as a receptive field."""
        limit = (6 / (fan_in + fan_out)) ** 0.5
        return self.add_weight(name=name, shape=shape, initializer=keras.initializers.RandomUniform(-limit, limit))

    def call(self, inputs: Tensor, training: bool | None = None, return_attention: bool = False) -> Tensor:
        """(batch_size, tokens, dim) -> (batch_size, queries or tokens, dim).

        With return_attention also the attention, float32 (batch_size, heads, queries or tokens, tokens).
        """
        asking = inputs[:, -self.outputs :]
        query = self._project("query", asking, inputs, self.outputs, self.key_dim)
        key = self._project("key", inputs, inputs, self.tokens, self.key_dim)
        value = self._project("value", inputs, inputs, self.tokens, self.value_dim)
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2)))
        attention = ops.softmax(ops.cast(scores, "float32") / self.key_dim**0.5, axis=-1)
        mixed = ops.matmul(ops.cast(attention, value.dtype), value)
        mixed = ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, self.outputs, self.heads * self.value_dim))
        attended = self.drop(self._per_token(mixed, self.output_kernel), training=training)
        attended = self.norm_attention(asking + attended)
        hidden = ops.gelu(self._per_token(attended, self.ffn_in_kernel) + self.ffn_in_bias, approximate=False)
        hidden = self.drop(self._per_token(hidden, self.ffn_out_kernel) + self.ffn_out_bias, training=training)
        outputs = self.norm_ffn(attended + hidden)
        return (outputs, attention) if return_attention else outputs

    def _project(self, name: str, tokens, everything, count: int, width: int):
        """-> (batch_size, heads, count, width)."""
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

    def _per_token(self, tokens, kernel):
        return ops.matmul(tokens, kernel) if self.projection == "shared" else ops.einsum("nld,ldk->nlk", tokens, kernel)

    def value_projections(self):
        """V̂^h of every head, (heads, tokens * dim, tokens * value_dim): composite projections only."""
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
        config: dict[str, Any] = super().get_config()
        names = ("projection", "heads", "key_dim", "value_dim", "ffn_dim", "qk_rank", "v_rank", "queries", "dropout")
        config.update({name: getattr(self, name) for name in names})
        return config
