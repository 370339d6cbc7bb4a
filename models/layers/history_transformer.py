"""Transformer over a history: encoder of the items, decoder of the candidate."""

from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.history_attention import HistoryAttention
from ctrpipe.models.layers.one_history import is_shared
from ctrpipe.models.layers.places import newest_first
from ctrpipe.models.layers.text_encoder import FeedForward

POSITIONS = ("sinusoidal", "learned")


def sinusoids(positions: int, width: int) -> np.ndarray:
    """Returns `sin(p / 10000^(2i/width))`, or the cosine at odd places, float32 (positions, width)."""
    places = np.arange(width)
    angles = np.arange(positions)[:, None] / 10000.0 ** (places // 2 * 2 / width)
    return np.where(places % 2 == 0, np.sin(angles), np.cos(angles)).astype(np.float32)


@keras.saving.register_keras_serializable(package="ctrpipe")
class HistoryTransformer(keras.layers.Layer):
    """Encodes a history with self-attention and lets the candidate attend to the result.

    The encoder starts from `x_j = sqrt(width) W e_j + position_j` and repeats `x = FeedForward(Attention(x, x))`. The
    decoder starts from `y = sqrt(width) W v_candidate + position_0` and repeats `y = FeedForward(Attention(y, x))`. The
    output is the last y. The feed-forward networks have a ReLU; all sublayers have a residual and layer normalisation.
    The decoder has no self-attention, which would have only one position to attend to.

    Positions count backwards from the candidate: the candidate is 0, the newest item is 1. An item's position therefore
    does not depend on padding or on how many older items were cut off.

    Args:
        width: int. Width of the states. Defaults to 32.
        layers: int. Number of encoder layers, and of decoder layers. Defaults to 1.
        heads: int. Number of attention heads; must divide `width`. Defaults to 2.
        ffn_dim: int. Width of the feed-forward networks' hidden layer. Defaults to 128.
        positions: str. "sinusoidal", or "learned" for one learned vector per position. Defaults to "sinusoidal".
        attention: str. "softmax" or "pointwise" (see HistoryAttention). Defaults to "softmax".
        causal: bool. Whether an item attends only to itself and to older items. Defaults to True.
        dropout: float. Dropout rate on the sums of embeddings and positions, and on each sublayer's output. Defaults to
            0.

    Example:
        >>> candidate, items = keras.random.normal((2, 4)), keras.random.normal((2, 5, 4))
        >>> is_item = keras.ops.ones((2, 5), "bool")
        >>> keras.ops.shape(HistoryTransformer(width=8)(candidate, items, is_item))  # (batch_size, width)
        (2, 8)

    Raises:
        ValueError: a size is not positive, `heads` does not divide `width`, or `positions` or `attention` is unknown.

    References:
        Vaswani et al., "Attention Is All You Need", 2017, section 3.
    """

    def __init__(
        self,
        width: int = 32,
        layers: int = 1,
        heads: int = 2,
        ffn_dim: int = 128,
        positions: str = "sinusoidal",
        attention: str = "softmax",
        causal: bool = True,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        require_positive(width=width, layers=layers, heads=heads, ffn_dim=ffn_dim)
        if positions not in POSITIONS:
            raise ValueError(f"`positions` should be one of {POSITIONS}. Received: {positions!r}")
        if width % heads:
            raise ValueError(f"`heads` should divide the width {width}. Received: heads={heads}")
        self.width = width
        self.layers = layers
        self.heads = heads
        self.ffn_dim = ffn_dim
        self.positions = positions
        self.attention = attention
        self.causal = causal
        self.dropout = dropout
        policy = self.dtype_policy
        self.project = keras.layers.Dense(width, use_bias=False, dtype=policy, name="project")
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

        def stack(part: str) -> list[tuple[HistoryAttention, FeedForward]]:
            pairs = []
            for number in range(layers):
                attend = HistoryAttention(heads, attention, dropout, dtype=policy, name=f"{part}_attention_{number}")
                ffn = FeedForward(ffn_dim, "relu", 1e-6, dropout, dtype=policy, name=f"{part}_ffn_{number}")
                pairs.append((attend, ffn))
            return pairs

        self.encoder, self.decoder = stack("encoder"), stack("decoder")

    def build(
        self, candidate_shape: Shape, items_shape: Shape | None = None, is_item_shape: Shape | None = None
    ) -> None:
        assert items_shape is not None
        self.project.build(items_shape)
        count = items_shape[1] + 1
        self.position_table = sinusoids(count, self.width)
        if self.positions == "learned":
            initializer = keras.initializers.RandomNormal(stddev=0.02)
            self.position_table = self.add_weight(name="positions", shape=(count, self.width), initializer=initializer)
        for attend, ffn in (*self.encoder, *self.decoder):
            attend.build((None, None, self.width))
            ffn.build((None, None, self.width))

    def call(self, candidate: Tensor, items: Tensor, is_item: Tensor, training: bool | None = None) -> Tensor:
        """Maps (batch_size, width), (batch_size, length, width), bool (batch_size, length) to (batch_size, width).

        Items are ordered by time: the newest item is last, followed by padding. The width of the output is
        `self.width`. All candidates may share one history, (1, length, width) and (1, length), which is then encoded
        once.
        """
        shared = is_shared(candidate, items)
        # Queries do not see each other: the candidates that share a history are its queries.
        query = self._token(candidate[None] if shared else candidate[:, None], self.position_table[:1], training)
        states = self._token(newest_first(items, is_item), self.position_table[1:], training)
        sees = is_item[:, None]
        length = items.shape[1]
        older = np.triu(np.ones((length, length), bool))  # the newest is the first
        among = ops.logical_and(sees, older[None]) if self.causal else sees
        for attend, ffn in self.encoder:
            states = ffn(attend(states, states, among, training=training), training=training)
        for attend, ffn in self.decoder:
            query = ffn(attend(query, states, sees, training=training), training=training)
        return query[0] if shared else query[:, 0]

    def _token(self, vectors: Tensor, positions: Tensor, training: bool | None) -> Tensor:
        """Returns vectors projected to the width of the states, with their positions added."""
        projected = self.project(vectors) * self.width**0.5
        return self.drop(projected + ops.cast(positions, projected.dtype), training=training)

    def compute_output_shape(self, candidate_shape: Shape, items_shape: Shape, is_item_shape: Shape) -> Shape:
        return (candidate_shape[0], self.width)

    def get_config(self) -> dict[str, Any]:
        names = ("width", "layers", "heads", "ffn_dim", "positions", "attention", "causal", "dropout")
        return dict(super().get_config(), **{name: getattr(self, name) for name in names})
