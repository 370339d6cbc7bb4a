"""The cross layer of DCN's first version."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class VectorCross(keras.layers.Layer):
    """Cross layer: the network's input scaled by a projection of the previous output, plus that output.

    `x_{l+1} = x_0 (x_lᵀ w) + b + x_l`. Without b, a stack of these layers returns a scalar multiple of x_0.

    Args:
        use_bias: bool. Whether to add b. Defaults to True.

    Example:
        >>> x0 = keras.random.normal((2, 10))  # (batch_size, width)
        >>> cross = VectorCross()
        >>> keras.ops.shape(cross(x0, cross(x0)))
        (2, 10)

    References:
        Wang et al., "Deep & Cross Network for Ad Click Predictions", 2017, equation 3.
    """

    def __init__(self, use_bias: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.use_bias = use_bias

    def build(self, x0_shape: Shape, x_shape: Shape | None = None) -> None:
        width = x0_shape[-1]
        self.kernel = self.add_weight(name="kernel", shape=(width, 1), initializer="glorot_uniform")
        self.bias = self.add_weight(name="bias", shape=(width,), initializer="zeros") if self.use_bias else None

    def call(self, x0: Tensor, x: Tensor | None = None) -> Tensor:
        """Maps (batch_size, width) to the same shape.

        Args:
            x0: The input of the network.
            x: The output of the previous layer; None for the first layer, which takes x0.
        """
        x = x0 if x is None else x
        crossed = x0 * ops.matmul(x, self.kernel) + x
        return crossed + self.bias if self.use_bias else crossed

    def compute_output_shape(self, x0_shape: Shape, x_shape: Shape | None = None) -> Shape:
        return x0_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), use_bias=self.use_bias)
