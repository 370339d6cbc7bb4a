"""Inner products of all pairs of fields."""

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.pairs import upper_triangle


@keras.saving.register_keras_serializable(package="ctrpipe")
class InnerProduct(keras.layers.Layer):
    """Computes the inner products of all pairs of fields.

    `output_ij = <e_i, e_j>` for all i < j, ordered as in layers.pairs.

    Example:
        >>> rows = keras.random.normal((2, 4, 8))  # (batch_size, fields, dim)
        >>> keras.ops.shape(InnerProduct()(rows))  # (batch_size, pairs)
        (2, 6)

    References:
        Qu et al., "Product-based Neural Networks", 2016, equation 7 (without the constant diagonal).
    """

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim) to (batch_size, fields * (fields - 1) / 2)."""
        return upper_triangle(ops.matmul(inputs, ops.transpose(inputs, (0, 2, 1))))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[1] * (input_shape[1] - 1) // 2)
