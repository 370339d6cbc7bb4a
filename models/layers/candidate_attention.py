"""Multi-head attention of the candidate to items of its history (SIM)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class CandidateAttention(keras.layers.Layer):
    """Multi-head attention of the candidate to the items of a history, with bilinear scores.

    `head_h = Σ_j a_hj e_j` with `a_h = softmax_j(<W_b^h e_j, W_a^h v_candidate>)`. The output is the concatenation of
    all heads, zero for a history without items.

    Args:
        heads: int. Number of heads. Defaults to 2.
        key_dim: int. Width of a head's queries and keys. Defaults to 16.
        found: int. Number of items that each head attends to, by highest score (TWIN); None for all. All ties with the
            last score are kept. Defaults to None.

    Example:
        >>> candidate, items = keras.random.normal((2, 4)), keras.random.normal((2, 5, 4))
        >>> is_item = keras.ops.ones((2, 5), "bool")
        >>> keras.ops.shape(CandidateAttention(heads=3)(candidate, items, is_item))  # (batch_size, heads * width)
        (2, 12)

    Raises:
        ValueError: `heads`, `key_dim` or `found` is not positive.

    References:
        Pi et al., "Search-based User Interest Modeling with Lifelong Sequential Behavior Data for Click-Through Rate
        Prediction", 2020, section 3.3; Chang et al., "TWIN: TWo-stage Interest Network for Lifelong User Behavior
        Modeling in CTR Prediction at Kuaishou", 2023, equations 5 to 7, without the cross features.
    """

    def __init__(self, heads: int = 2, key_dim: int = 16, found: int | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(heads=heads, key_dim=key_dim, found=found)
        self.found = found
        self.heads = heads
        self.key_dim = key_dim
        units, policy = heads * key_dim, self.dtype_policy
        self.of_candidate = keras.layers.Dense(units, use_bias=False, dtype=policy, name="of_candidate")
        self.of_item = keras.layers.Dense(units, use_bias=False, dtype=policy, name="of_item")

    def build(
        self, candidate_shape: Shape, items_shape: Shape | None = None, is_item_shape: Shape | None = None
    ) -> None:
        self.of_candidate.build(candidate_shape)
        self.of_item.build(items_shape)

    def call(self, candidate: Tensor, items: Tensor, is_item: Tensor) -> Tensor:
        """Maps (batch_size, width), (batch_size, length, width), bool (batch_size, length) to the heads' outputs."""
        length, width = items.shape[1:]
        products = self.of_item(items) * self.of_candidate(candidate)[:, None]
        by_head = ops.sum(ops.reshape(products, (-1, length, self.heads, self.key_dim)), axis=3)
        scores = ops.transpose(ops.cast(by_head, "float32"), (0, 2, 1))
        is_item = is_item[:, None]
        if self.found is not None and self.found < length:
            masked = ops.stop_gradient(ops.where(is_item, scores, -1e30))
            is_item = ops.logical_and(is_item, masked >= ops.top_k(masked, self.found, sorted=True)[0][..., -1:])
        weights = ops.where(is_item, ops.softmax(ops.where(is_item, scores, -1e9), axis=2), 0.0)
        summed = ops.matmul(ops.cast(weights, items.dtype), items)
        return ops.reshape(summed, (-1, self.heads * width))

    def compute_output_shape(self, candidate_shape: Shape, items_shape: Shape, is_item_shape: Shape) -> Shape:
        return (candidate_shape[0], self.heads * items_shape[2])

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), heads=self.heads, key_dim=self.key_dim, found=self.found)
