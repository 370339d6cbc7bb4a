"""A cross layer whose second half is a masked copy of the first (FCN, DCNv3)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.layer_norm import LayerNorm

EPSILON = 1e-5


@keras.saving.register_keras_serializable(package="ctrpipe")
class MaskedCross(keras.layers.Layer):
    """A cross layer with half the weights: `x' = x_f ∘ ([c, c ∘ relu(LayerNorm(c))] + b) + x`, `c = W x`.

    With x_f = x the order of the interactions doubles with each layer (exponential cross network); with x_f = x_0 it
    grows by one (linear cross network).

    Args:
        normalises: bool. Whether the mask has a layer normalisation. Defaults to True.
        dropout: float. Dropout rate of the output. Defaults to 0.

    Example:
        >>> x = keras.random.normal((2, 2, 6))  # (batch_size, heads, width)
        >>> keras.ops.shape(MaskedCross()(x, x))
        (2, 2, 6)

    Raises:
        ValueError: the width is odd.

    References:
        Li et al., "FCN: Fusing Exponential and Linear Cross Network for Click-Through Rate Prediction", 2024, equations
        6 to 8.
    """

    def __init__(self, normalises: bool = True, dropout: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        policy = self.dtype_policy
        self.normalises = normalises
        self.dropout = dropout
        self.norm = LayerNorm(epsilon=EPSILON, dtype=policy, name="norm") if normalises else None
        self.drop = keras.layers.Dropout(dropout, dtype=policy) if dropout else None

    def build(self, factor_shape: Shape, states_shape: Shape | None = None) -> None:
        width = factor_shape[-1]
        if width % 2:
            raise ValueError(f"The width should be even, so that half of it can be a mask. Received: {width}")
        self.kernel = self.add_weight(name="kernel", shape=(width, width // 2), initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")
        if self.norm is not None:
            self.norm.build((*factor_shape[:-1], width // 2))

    def call(self, factor: Tensor, states: Tensor, training: bool | None = None) -> Tensor:
        """Maps x_f and x, (batch_size, heads, width) each, to x', (batch_size, heads, width)."""
        crossed = ops.matmul(states, self.kernel)
        mask = ops.relu(crossed if self.norm is None else self.norm(crossed))
        outputs = factor * (ops.concatenate([crossed, crossed * mask], axis=-1) + self.bias) + states
        return self.drop(outputs, training=training) if self.drop else outputs

    def compute_output_shape(self, factor_shape: Shape, states_shape: Shape) -> Shape:
        return factor_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), normalises=self.normalises, dropout=self.dropout)
