"""All inner products of pairs of fields."""

import keras
from keras import ops

from models.layers.pairs import upper_triangle
from models.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class InnerProduct(keras.layers.Layer):
    """<e_i, e_j> for all i < j.

    References:
        Qu et al., "Product-based Neural Networks", 2016, equation 7 (without the constant diagonal).
    """

    def call(self, inputs: Tensor) -> Tensor:
        """(batch_size, fields, dim) -> (batch_size, fields * (fields - 1) / 2)."""
        return upper_triangle(ops.matmul(inputs, ops.transpose(inputs, (0, 2, 1))))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[1] * (input_shape[1] - 1) // 2)
