"""Second-order interactions of a factorisation machine."""

import keras
from keras import ops

from ctrpipe.models.base.tensors import Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class FactorizationMachine(keras.layers.Layer):
    """Sums the inner products of all pairs of fields.

    `output = Σ_{i<j} <e_i, e_j> = ½ Σ_d ((Σ_i e_id)² - Σ_i e_id²)`. The cost is linear in the number of fields.

    Example:
        >>> rows = keras.ops.array([[[1.0, 2.0], [3.0, 4.0], [0.0, 1.0]]])  # (batch_size, fields, dim)
        >>> print(FactorizationMachine()(rows).numpy())  # 11 + 2 + 4
        [[17.]]

    References:
        Rendle, "Factorization Machines", 2010, lemma 3.1.
    """

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim) to float32 (batch_size, 1)."""
        inputs = ops.cast(inputs, "float32")  # the difference of two large numbers loses digits
        square_of_sum = ops.square(ops.sum(inputs, axis=1))
        sum_of_squares = ops.sum(ops.square(inputs), axis=1)
        return 0.5 * ops.sum(square_of_sum - sum_of_squares, axis=1, keepdims=True)

    def compute_output_spec(self, inputs: Tensor) -> Tensor:
        return keras.KerasTensor((inputs.shape[0], 1), "float32")
