"""Second-order interactions of a field-aware factorisation machine."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="ctrpipe")
class FieldAwareInteraction(keras.layers.Layer):
    """Σ_{i<j} <e_i^(j), e_j^(i)>, where e_i^(j) is the vector that field i keeps for field j.

    The products over all (i, j) hold every pair twice and the diagonal once, so half of their difference is the sum.

    References:
        Juan et al., "Field-aware Factorization Machines for CTR Prediction", 2016, equation 4.
    """

    def call(self, inputs):
        """(batch_size, fields, fields * dim), e_i^(j) at [:, i, j * dim:(j + 1) * dim] -> (batch_size, 1)."""
        fields = inputs.shape[1]
        vectors = ops.reshape(inputs, (-1, fields, fields, inputs.shape[2] // fields))
        products = vectors * ops.transpose(vectors, (0, 2, 1, 3))
        everything = ops.sum(ops.cast(products, "float32"), axis=(1, 2, 3))
        diagonal = ops.stack([vectors[:, field, field] for field in range(fields)], axis=1)
        diagonal = ops.sum(ops.square(ops.cast(diagonal, "float32")), axis=(1, 2))
        return ops.expand_dims(0.5 * (everything - diagonal), -1)

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((inputs.shape[0], 1), "float32")
