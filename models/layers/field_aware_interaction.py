"""Second-order interactions of a field-aware factorisation machine."""

import keras
import numpy as np
from keras import ops

from models.tensors import Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class FieldAwareInteraction(keras.layers.Layer):
    """Σ_{i<j} <e_i^(j), e_j^(i)>, where e_i^(j) is the vector that field i keeps for field j.

    The products over all (i, j) but the diagonal hold every pair twice, so half of their sum is what is asked for.

    References:
        Juan et al., "Field-aware Factorization Machines for CTR Prediction", 2016, equation 4.
    """

    def call(self, inputs: Tensor) -> Tensor:
        """(batch_size, fields, fields * dim), e_i^(j) at [:, i, j * dim:(j + 1) * dim] -> (batch_size, 1)."""
        fields = inputs.shape[1]
        vectors = ops.reshape(inputs, (-1, fields, fields, inputs.shape[2] // fields))
        apart = ops.cast((1 - np.eye(fields)).reshape(1, fields, fields, 1), vectors.dtype)

        @ops.custom_gradient
        def interact(vectors):
            partners = ops.transpose(vectors, (0, 2, 1, 3)) * apart

            def gradient(*arguments, upstream=None):
                upstream = arguments[0] if upstream is None else upstream
                return ops.cast(ops.reshape(upstream, (-1, 1, 1, 1)), partners.dtype) * partners

            products = ops.cast(vectors * partners, "float32")
            return 0.5 * ops.sum(products, axis=(1, 2, 3)), gradient

        return ops.expand_dims(interact(vectors), -1)

    def compute_output_spec(self, inputs: Tensor) -> Tensor:
        return keras.KerasTensor((inputs.shape[0], 1), "float32")
