"""Products of all pairs of fields, with one kernel per pair."""

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.pairs import pair_indices


@keras.saving.register_keras_serializable(package="ctrpipe")
class KernelProduct(keras.layers.Layer):
    """Computes a product of each pair of fields, with one kernel per pair.

    `output_ij = e_iᵀ K_ij e_j` for all i < j: the sum of the entries of the outer product e_i e_jᵀ, weighted by K_ij.

    Example:
        >>> rows = keras.random.normal((2, 4, 8))  # (batch_size, fields, dim)
        >>> keras.ops.shape(KernelProduct()(rows))  # (batch_size, pairs)
        (2, 6)

    References:
        Qu et al., "Product-based Neural Networks for User Response Prediction over Multi-field Categorical Data",
        2018, section 4.2 (kernel product; DeepCTR's "outer product").
    """

    def build(self, input_shape: Shape) -> None:
        pairs = input_shape[1] * (input_shape[1] - 1) // 2
        shape = (pairs, input_shape[2], input_shape[2])
        self.kernel = self.add_weight(name="kernel", shape=shape, initializer="glorot_uniform")

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim) to (batch_size, fields * (fields - 1) / 2)."""
        first, second = pair_indices(inputs.shape[1])
        left, right = ops.take(inputs, first, axis=1), ops.take(inputs, second, axis=1)
        return ops.sum(ops.einsum("npd,pde->npe", left, self.kernel) * right, axis=-1)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[1] * (input_shape[1] - 1) // 2)
