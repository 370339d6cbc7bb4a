"""Transformer over a history and the candidate together (BST)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.places import newest_first
from ctrpipe.models.layers.text_encoder import FeedForward, SelfAttention

OUTPUTS = ("all", "candidate")


@keras.saving.register_keras_serializable(package="ctrpipe")
class BehaviorTransformer(keras.layers.Layer):
    """Passes the candidate and the items of its history through Transformer layers together.

    `x_j = [e_j, position_j]` for the candidate and each item, then `x = FeedForward(SelfAttention(x))` in every layer.
    Both sublayers have a residual and layer normalisation; the feed-forward network has a leaky ReLU.

    Positions count backwards from the candidate: the candidate is 0, the newest item is 1. The paper's position is the
    time between the item and the candidate; a log can provide this as an additional aligned sequence.

    Args:
        layers: int. Number of Transformer layers. Defaults to 1.
        heads: int. Number of attention heads; must divide the items' width plus `position_dim`. Defaults to 4.
        ffn_dim: int. Width of the feed-forward networks' hidden layer. Defaults to 64.
        position_dim: int. Width of a position's embedding. Defaults to 16.
        output: str. "all": the concatenated outputs of all places, from the candidate to the oldest item, zero for
            padding. "candidate": the candidate's output. Defaults to "all".
        dropout: float. Dropout rate in the attention and the feed-forward networks. Defaults to 0.

    Example:
        >>> candidate, items = keras.random.normal((2, 4)), keras.random.normal((2, 5, 4))
        >>> is_item = keras.ops.ones((2, 5), "bool")
        >>> keras.ops.shape(BehaviorTransformer(position_dim=4)(candidate, items, is_item))  # (5 + 1) * (4 + 4)
        (2, 48)

    Raises:
        ValueError: a size is not positive, `heads` does not divide the width, or `output` is unknown.

    References:
        Chen et al., "Behavior Sequence Transformer for E-commerce Recommendation in Alibaba", 2019, section 2.
    """

    def __init__(
        self,
        layers: int = 1,
        heads: int = 4,
        ffn_dim: int = 64,
        position_dim: int = 16,
        output: str = "all",
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_positive(layers=layers, heads=heads, ffn_dim=ffn_dim, position_dim=position_dim)
        if output not in OUTPUTS:
            raise ValueError(f"`output` should be one of {OUTPUTS}. Received: {output!r}")
        self.layers = layers
        self.heads = heads
        self.ffn_dim = ffn_dim
        self.position_dim = position_dim
        self.output_places = output
        self.dropout = dropout
        policy = self.dtype_policy
        self.stack = [
            (
                SelfAttention(heads, 1e-6, dropout, dtype=policy, name=f"attention_{number}"),
                FeedForward(ffn_dim, "leaky_relu", 1e-6, dropout, dtype=policy, name=f"ffn_{number}"),
            )
            for number in range(layers)
        ]

    def build(
        self, candidate_shape: Shape, items_shape: Shape | None = None, is_item_shape: Shape | None = None
    ) -> None:
        assert items_shape is not None
        initializer = keras.initializers.RandomNormal(stddev=0.02)
        shape = (items_shape[1] + 1, self.position_dim)
        self.position_table = self.add_weight(name="positions", shape=shape, initializer=initializer)
        for attention, ffn in self.stack:
            attention.build((None, shape[0], items_shape[2] + self.position_dim))
            ffn.build((None, shape[0], items_shape[2] + self.position_dim))

    def call(self, candidate: Tensor, items: Tensor, is_item: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, width), (batch_size, length, width), bool (batch_size, length) to (batch_size, outputs).

        Items are ordered by time: the newest item is last, followed by padding.
        """
        states = ops.concatenate([candidate[:, None], newest_first(items, is_item)], axis=1)
        shape = (ops.shape(states)[0], states.shape[1], self.position_dim)
        positions = ops.broadcast_to(ops.cast(self.position_table, states.dtype), shape)
        states = ops.concatenate([states, positions], axis=2)
        mask = ops.pad(is_item, ((0, 0), (1, 0)), constant_values=True)
        *inner, (attention, ffn) = self.stack
        for layer, network in inner:
            states = network(layer(states, mask, training=training), training=training)
        if self.output_places == "candidate":
            return ffn(attention.of_first(states, mask, training=training), training=training)
        states = ffn(attention(states, mask, training=training), training=training)
        return ops.reshape(ops.where(mask[:, :, None], states, 0), (-1, states.shape[1] * states.shape[2]))

    def compute_output_shape(self, candidate_shape: Shape, items_shape: Shape, is_item_shape: Shape) -> Shape:
        places = 1 if self.output_places == "candidate" else items_shape[1] + 1
        return (candidate_shape[0], places * (items_shape[2] + self.position_dim))

    def get_config(self) -> dict[str, Any]:
        names = ("layers", "heads", "ffn_dim", "position_dim", "dropout")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names}, output=self.output_places)
