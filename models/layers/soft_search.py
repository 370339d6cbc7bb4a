"""Relevance of each item of a history to the candidate, as an inner product (SIM)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.one_history import inner_products


@keras.saving.register_keras_serializable(package="ctrpipe")
class SoftSearch(keras.layers.Layer):
    """Scores the items of a history: `r_j = <W_b e_j, W_a v_candidate>`.

    Args:
        units: int. Width in which items and candidate are compared. Defaults to 16.

    Example:
        >>> candidate, items = keras.random.normal((2, 4)), keras.random.normal((2, 5, 4))
        >>> keras.ops.shape(SoftSearch(units=3)(candidate, items))  # (batch_size, length)
        (2, 5)

    Raises:
        ValueError: `units` is not positive.

    References:
        Pi et al., "Search-based User Interest Modeling with Lifelong Sequential Behavior Data for Click-Through Rate
        Prediction", 2020, section 3.2.
    """

    def __init__(self, units: int = 16, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(units=units)
        self.units = units
        self.of_candidate = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="of_candidate")
        self.of_item = keras.layers.Dense(units, use_bias=False, dtype=self.dtype_policy, name="of_item")

    def build(self, candidate_shape: Shape, items_shape: Shape | None = None) -> None:
        self.of_candidate.build(candidate_shape)
        self.of_item.build(items_shape)

    def call(self, candidate: Tensor, items: Tensor) -> Tensor:
        """Maps (batch_size, width), (batch_size, length, width) to float32 (batch_size, length).

        All candidates may share one history, (1, length, width).
        """
        return ops.cast(inner_products(self.of_candidate(candidate), self.of_item(items)), "float32")

    def compute_output_shape(self, candidate_shape: Shape, items_shape: Shape) -> Shape:
        return (candidate_shape[0], items_shape[1])

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), units=self.units)
