"""Attention weights over a history, with a normalisation that depends less on its length (NAIS)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.one_history import is_shared

KINDS = ("prod", "concat")


@keras.saving.register_keras_serializable(package="ctrpipe")
class SmoothedAttention(keras.layers.Layer):
    """Computes weights of a history's items with a network and a softmax with a smoothed denominator.

    `a_j = exp(f_j) / (Σ_j exp(f_j))^β`, where `f_j = hᵀ relu(W (p ∘ q_j) + b)` ("prod") or `hᵀ relu(W [p, q_j] + b)`
    ("concat").

    Args:
        kind: str. "prod" or "concat". Defaults to "prod".
        units: int. Width of the network. Defaults to 16.
        beta: float. β in (0, 1]; 1 is the softmax. A smaller β penalises long histories less. Defaults to 0.5.

    Example:
        >>> candidate, items = keras.random.normal((2, 4)), keras.random.normal((2, 5, 4))
        >>> keras.ops.shape(SmoothedAttention(units=3)(candidate, items, keras.ops.ones((2, 5), "bool")))
        (2, 5)

    Raises:
        ValueError: `kind` is unknown, `units` is not positive, or `beta` is outside (0, 1].

    References:
        He et al., "NAIS: Neural Attentive Item Similarity Model for Recommendation", 2018, equations 8 and 9.
    """

    def __init__(self, kind: str = "prod", units: int = 16, beta: float = 0.5, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if kind not in KINDS:
            raise ValueError(f"`attention` should be one of {KINDS}. Received: {kind!r}")
        require_positive(units=units)
        if not 0 < beta <= 1:
            raise ValueError(f"`beta` should be above 0 and at most 1. Received: beta={beta}")
        self.kind = kind
        self.units = units
        self.beta = beta
        self.hidden = keras.layers.Dense(units, "relu", dtype=self.dtype_policy)
        self.score = keras.layers.Dense(1, use_bias=False, dtype=self.dtype_policy)

    def build(
        self, candidate_shape: Shape, items_shape: Shape | None = None, counted_shape: Shape | None = None
    ) -> None:
        width = candidate_shape[-1] * (2 if self.kind == "concat" else 1)
        self.hidden.build((None, None, width))
        self.score.build((None, None, self.units))

    def call(self, candidate: Tensor, items: Tensor, counted: Tensor) -> Tensor:
        """Returns the weights, float32 (batch_size, length); zero for items that are not counted.

        Args:
            candidate: p, (batch_size, width).
            items: q_j, (batch_size, length, width), or (1, length, width) for all candidates.
            counted: Which items are counted, bool (batch_size, length).
        """
        hidden = self._of_one_history if is_shared(candidate, items) else self._hidden
        scores = ops.cast(self.score(hidden(candidate, items)), "float32")[:, :, 0]
        greatest = ops.max(ops.where(counted, scores, -1e9), axis=1, keepdims=True)
        greatest = ops.where(ops.any(counted, axis=1, keepdims=True), greatest, 0.0)
        # exp(f) = exp(f - m) exp(m): values are large only where the quotient itself is large.
        scaled = ops.where(counted, ops.exp(ops.where(counted, scores - greatest, 0.0)), 0.0)
        total = ops.maximum(ops.sum(scaled, axis=1, keepdims=True), 1e-30)
        return scaled * ops.exp((1 - self.beta) * greatest) / total**self.beta

    def _hidden(self, candidate: Tensor, items: Tensor) -> Tensor:
        """Returns the hidden layer's output, (batch_size, length, units)."""
        beside = ops.broadcast_to(candidate[:, None], ops.shape(items))
        return self.hidden(beside * items if self.kind == "prod" else ops.concatenate([beside, items], axis=2))

    def _of_one_history(self, candidate: Tensor, items: Tensor) -> Tensor:
        """Returns the output of `_hidden` for a shared history, with the candidate folded into the weights."""
        kernel, bias = (ops.cast(weight, items.dtype) for weight in (self.hidden.kernel, self.hidden.bias))
        if self.kind == "prod":
            return ops.relu(ops.matmul(items, candidate[:, :, None] * kernel) + bias)
        of_candidate, of_item = ops.split(kernel, 2, axis=0)
        return ops.relu(ops.matmul(items, of_item) + (ops.matmul(candidate, of_candidate) + bias)[:, None])

    def compute_output_shape(self, candidate_shape: Shape, items_shape: Shape, counted_shape: Shape) -> Shape:
        return (candidate_shape[0], items_shape[1])

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), kind=self.kind, units=self.units, beta=self.beta)
