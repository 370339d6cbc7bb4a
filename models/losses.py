"""Losses on logits."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="ctrpipe")
class BinaryCrossEntropy(keras.losses.Loss):
    """Mean over rows and tasks of log(1 + e^z) - y z, for logits z and labels y (batch_size, tasks)."""

    def __init__(self, name="binary_cross_entropy", **kwargs):
        super().__init__(name=name, **kwargs)

    def call(self, y_true, y_pred):
        losses = ops.relu(y_pred) - y_pred * y_true + ops.log1p(ops.exp(-ops.abs(y_pred)))
        return ops.mean(losses, axis=-1)
