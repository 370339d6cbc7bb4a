"""The superposed outer product of all fields."""

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class OuterProduct(keras.layers.Layer):
    """Computes the outer product of the sum of all fields with itself.

    `output = Σ_i Σ_j e_i e_jᵀ = f fᵀ` with `f = Σ_i e_i`, flattened.

    Example:
        >>> rows = keras.random.normal((2, 4, 8))  # (batch_size, fields, dim)
        >>> keras.ops.shape(OuterProduct()(rows))  # (batch_size, dim * dim)
        (2, 64)

    References:
        Qu et al., "Product-based Neural Networks", 2016, equation 11.
    """

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim) to (batch_size, dim * dim)."""
        total = ops.sum(inputs, axis=1)
        outer = ops.expand_dims(total, 2) * ops.expand_dims(total, 1)
        return ops.reshape(outer, (-1, inputs.shape[2] ** 2))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[2] ** 2)
