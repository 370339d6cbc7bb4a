"""Products of pairs of fields through a kernel of each pair."""

import keras
from keras import ops

from models.layers.pairs import pair_indices
from models.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class KernelProduct(keras.layers.Layer):
    """e_iᵀ K_ij e_j for all i < j: the outer product e_i e_jᵀ weighted entry by entry.

    References:
        Qu et al., "Product-based Neural Networks for User Response Prediction over Multi-field Categorical Data",
        2018, section 4.2 (kernel product; DeepCTR's "outer product").
    """

    def build(self, input_shape: Shape) -> None:
        pairs = input_shape[1] * (input_shape[1] - 1) // 2
        shape = (pairs, input_shape[2], input_shape[2])
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer="glorot_uniform")

    def call(self, inputs: Tensor) -> Tensor:
        """(batch_size, fields, dim) -> (batch_size, fields * (fields - 1) / 2)."""
        first, second = pair_indices(inputs.shape[1])
        left, right = ops.take(inputs, first, axis=1), ops.take(inputs, second, axis=1)
        return ops.sum(ops.einsum("npd,pde->npe", left, self.kernel) * right, axis=-1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[1] * (input_shape[1] - 1) // 2)
