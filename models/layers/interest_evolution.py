"""Interest evolution: two recurrent networks over a history, with attention between them (DIEN)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.attentional_gru import AttentionalGRU
from ctrpipe.models.layers.one_history import inner_products


@keras.saving.register_keras_serializable(package="ctrpipe")
class InterestEvolution(keras.layers.Layer):
    """Two GRUs: one extracts interests, one with attention follows those relevant to the candidate.

    `h = GRU(e)`, `a_t = exp(h_t W v) / Σ_j exp(h_j W v)`, and `output = AUGRU(h, a)` after the newest item, zero for an
    empty history. The interests h have the items' width: DIEN's auxiliary loss compares an interest with the next item.

    Args:
        units: int. Width of the output. Defaults to 32.

    Example:
        >>> candidate, items = keras.random.normal((2, 4)), keras.random.normal((2, 5, 4))
        >>> is_item = keras.ops.ones((2, 5), "bool")
        >>> keras.ops.shape(InterestEvolution(units=3)(candidate, items, is_item))  # (batch_size, units)
        (2, 3)

    Raises:
        ValueError: `units` is not positive.

    References:
        Zhou et al., "Deep Interest Evolution Network for Click-Through Rate Prediction", 2019, sections "Interest
        Extractor Layer" and "Interest Evolving Layer".
    """

    def __init__(self, units: int = 32, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.evolution = AttentionalGRU(units, dtype=self.dtype_policy, name="evolution")

    def build(
        self, candidate_shape: Shape, items_shape: Shape | None = None, is_item_shape: Shape | None = None
    ) -> None:
        assert items_shape is not None
        width = items_shape[-1]
        self.extraction = AttentionalGRU(width, dtype=self.dtype_policy, name="extraction")
        self.compare = keras.layers.Dense(width, use_bias=False, dtype=self.dtype_policy, name="compare")
        self.extraction.build(items_shape)
        self.compare.build(candidate_shape)
        self.evolution.build(items_shape)

    def call(self, candidate: Tensor, items: Tensor, is_item: Tensor, return_interests: bool = False) -> Tensor:
        """Maps (batch_size, width), (batch_size, length, width), bool (batch_size, length) to (batch_size, units).

        All candidates may share one history, (1, length, width) and (1, length), and then share h. With
        `return_interests`, also returns h, (batch_size, length, width).
        """
        interests = self.extraction(items, ops.cast(is_item, items.dtype))
        scores = ops.cast(inner_products(self.compare(candidate), interests), "float32")
        attention = ops.where(is_item, ops.softmax(ops.where(is_item, scores, -1e9), axis=1), 0.0)
        # Padding has no attention: the last state equals the state after the newest item.
        outputs = self.evolution(interests, attention)[:, -1]
        return (outputs, interests) if return_interests else outputs

    def compute_output_shape(self, candidate_shape: Shape, items_shape: Shape, is_item_shape: Shape) -> Shape:
        return (candidate_shape[0], self.units)

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), units=self.units)
