"""Layer normalisation of each field's embedding."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor

EPSILON = 1e-5


@keras.saving.register_keras_serializable(package="ctrpipe")
class FieldNormalization(keras.layers.Layer):
    """Layer normalisation of each field's embedding, with a scale and a shift of its own.

    `output_f = γ_f ∘ (e_f - mean(e_f)) / sqrt(var(e_f) + ε) + β_f`.

    Example:
        >>> rows = keras.random.normal((2, 3, 4))  # (batch_size, fields, dim)
        >>> keras.ops.shape(FieldNormalization()(rows))
        (2, 3, 4)

    References:
        Wang et al., "MaskNet", 2021, equation 3.
    """

    def build(self, input_shape: Shape) -> None:
        shape = tuple(input_shape[1:])
        self.scale = self.add_weight(name="scale", shape=shape, initializer="ones")
        self.shift = self.add_weight(name="shift", shape=shape, initializer="zeros")

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim) to the same shape."""
        wide = ops.cast(inputs, "float32")
        mean = ops.mean(wide, axis=-1, keepdims=True)
        apart = wide - mean
        variance = ops.mean(ops.square(apart), axis=-1, keepdims=True)
        normalised = ops.cast(apart * ops.rsqrt(variance + EPSILON), inputs.dtype)
        return normalised * self.scale + self.shift

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config())
