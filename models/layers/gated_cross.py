"""Gated cross layer (GDCN)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class GatedCross(keras.layers.Layer):
    """A cross layer of DCN-v2 whose interactions pass an information gate.

    `x_{l+1} = x_0 ∘ (W x_l + b) ∘ sigmoid(V x_l) + x_l`.

    Example:
        >>> x0 = keras.random.normal((2, 6))  # (batch_size, width)
        >>> keras.ops.shape(GatedCross()(x0, x0))
        (2, 6)

    References:
        Wang et al., "Towards Deeper, Lighter and Interpretable Cross Network for CTR Prediction", 2023, equation 2.
    """

    def build(self, first_shape: Shape, states_shape: Shape | None = None) -> None:
        width = first_shape[-1]
        shape = (width, width)
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer="glorot_uniform")
        self.gate = self.add_weight(name="gate", shape=shape, initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros")

    def call(self, first: Tensor, states: Tensor) -> Tensor:
        """Maps x_0 and x_l, (batch_size, width) each, to x_{l+1}, (batch_size, width)."""
        both = ops.matmul(states, ops.concatenate([self.kernel, self.gate], axis=1))
        crossed, gated = ops.split(both, 2, axis=1)
        return first * (crossed + self.bias) * ops.sigmoid(gated) + states

    def compute_output_shape(self, first_shape: Shape, states_shape: Shape) -> Shape:
        return first_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config())
