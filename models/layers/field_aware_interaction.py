"""Second-order interactions of a field-aware factorisation machine."""

from collections.abc import Callable

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.tensors import Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class FieldAwareInteraction(keras.layers.Layer):
    """Sums the inner products of all pairs of fields, using each field's vector for the other field.

    `output = Σ_{i<j} <e_i^(j), e_j^(i)>`, where `e_i^(j)` is the vector of field i for field j. The layer computes half
    the sum over all i ≠ j, which counts every pair twice.

    Example:
        >>> rows = keras.random.normal((2, 4, 4 * 3))  # (batch_size, fields, fields * dim)
        >>> keras.ops.shape(FieldAwareInteraction()(rows))
        (2, 1)

    References:
        Juan et al., "Field-aware Factorization Machines for CTR Prediction", 2016, equation 4.
    """

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, fields * dim) to float32 (batch_size, 1).

        Args:
            inputs: The vectors; `inputs[:, i, j * dim:(j + 1) * dim]` is e_i^(j).
        """
        fields = inputs.shape[1]
        vectors = ops.reshape(inputs, (-1, fields, fields, inputs.shape[2] // fields))
        off_diagonal = ops.cast((1 - np.eye(fields)).reshape(1, fields, fields, 1), vectors.dtype)

        @ops.custom_gradient
        def interact(vectors: Tensor) -> tuple[Tensor, Callable[..., Tensor]]:
            partners = ops.transpose(vectors, (0, 2, 1, 3)) * off_diagonal

            def gradient(*arguments: Tensor, upstream: Tensor = None) -> Tensor:
                upstream = arguments[0] if upstream is None else upstream
                return ops.cast(ops.reshape(upstream, (-1, 1, 1, 1)), partners.dtype) * partners

            products = ops.cast(vectors * partners, "float32")
            return 0.5 * ops.sum(products, axis=(1, 2, 3)), gradient

        return ops.expand_dims(interact(vectors), -1)

    def compute_output_spec(self, inputs: Tensor) -> Tensor:
        return keras.KerasTensor((inputs.shape[0], 1), "float32")
