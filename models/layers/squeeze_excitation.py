"""Squeeze-and-excitation: a weight for each field (FiBiNET)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class SqueezeExcitation(keras.layers.Layer):
    """Multiplies each field's embedding by a weight computed from the means of all embeddings.

    `output_f = a_f e_f` with `a = act(W_2 relu(W_1 z))`, `z_f = mean(e_f)`.

    Args:
        reduction: int. Number of fields divided by the width of the hidden layer. Defaults to 3.
        activation: str. Activation of the weights. Defaults to "relu".

    Example:
        >>> rows = keras.random.normal((2, 6, 4))  # (batch_size, fields, dim)
        >>> keras.ops.shape(SqueezeExcitation(reduction=2)(rows))
        (2, 6, 4)

    Raises:
        ValueError: `reduction` is not positive.

    References:
        Huang et al., "FiBiNET: Combining Feature Importance and Bilinear feature Interaction for Click-Through Rate
        Prediction", 2019, equations 3 to 5.
    """

    def __init__(self, reduction: int = 3, activation: str = "relu", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(reduction=reduction)
        self.reduction = reduction
        self.activation = activation

    def build(self, input_shape: Shape) -> None:
        fields, policy = input_shape[1], self.dtype_policy
        units = max(1, fields // self.reduction)
        self.squeeze = keras.layers.Dense(units, "relu", use_bias=False, dtype=policy, name="squeeze")
        self.excite = keras.layers.Dense(fields, self.activation, use_bias=False, dtype=policy, name="excite")
        self.squeeze.build((None, fields))
        self.excite.build((None, units))

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim) to the same shape."""
        weights = self.excite(self.squeeze(ops.mean(inputs, axis=2)))
        return inputs * weights[:, :, None]

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), reduction=self.reduction, activation=self.activation)
