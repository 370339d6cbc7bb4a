"""Concatenates embeddings with their products with a linear gate (FinalNet)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class FeatureGating(keras.layers.Layer):
    """Appends to the embeddings their products with a gate that mixes the fields.

    `output = [E, E ∘ G]` with `G = W E + b`: g_f is a weighted sum of all fields' embeddings.

    Example:
        >>> keras.ops.shape(FeatureGating()(keras.random.normal((2, 3, 4))))  # (batch_size, 2 fields, dim)
        (2, 6, 4)

    References:
        Zhu et al., "FINAL: Factorized Interaction Layer for CTR Prediction", 2023, section 2.4.
    """

    def build(self, input_shape: Shape) -> None:
        fields = input_shape[1]
        # Gates start at one, as in the authors' code.
        self.kernel = self.add_weight(name="kernel", shape=(fields, fields), initializer="zeros")
        self.bias = self.add_weight(name="bias", shape=(fields,), initializer="ones")

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim) to (batch_size, 2 fields, dim)."""
        gates = ops.einsum("bfd,fg->bgd", inputs, self.kernel) + self.bias[:, None]
        return ops.concatenate([inputs, inputs * gates], axis=1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], 2 * input_shape[1], input_shape[2])

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config())
