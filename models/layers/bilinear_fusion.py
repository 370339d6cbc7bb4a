"""Bilinear fusion of two streams (FinalMLP)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class BilinearFusion(keras.layers.Layer):
    """Combines the outputs of two networks by their products, head by head.

    `output = b + w_1ᵀ x + w_2ᵀ y + Σ_h x_hᵀ W_h y_h`, with x and y cut into heads of equal width.

    Args:
        outputs: int. Number of outputs. Defaults to 1.
        heads: int. Number of heads; must divide the widths of x and y. Defaults to 1.

    Example:
        >>> x, y = keras.random.normal((2, 6)), keras.random.normal((2, 4))  # (batch_size, width)
        >>> keras.ops.shape(BilinearFusion(outputs=1, heads=2)(x, y))
        (2, 1)

    Raises:
        ValueError: a size is not positive, or `heads` does not divide a width.

    References:
        Mao et al., "FinalMLP: An Enhanced Two-Stream MLP Model for CTR Prediction", 2023, equations 7 and 8.
    """

    def __init__(self, outputs: int = 1, heads: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(outputs=outputs, heads=heads)
        self.outputs = outputs
        self.heads = heads
        self.first = keras.layers.Dense(outputs, dtype=self.dtype_policy, name="first")
        self.second = keras.layers.Dense(outputs, use_bias=False, dtype=self.dtype_policy, name="second")

    def build(self, first_shape: Shape, second_shape: Shape | None = None) -> None:
        assert second_shape is not None
        widths = first_shape[-1], second_shape[-1]
        for width in widths:
            if width % self.heads:
                raise ValueError(f"`heads` should divide the widths {widths}. Received: heads={self.heads}")
        self.first.build(first_shape)
        self.second.build(second_shape)
        self.head_widths = [width // self.heads for width in widths]
        limit = (6 / sum(self.head_widths)) ** 0.5
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.heads, self.head_widths[0], self.head_widths[1] * self.outputs),
            initializer=keras.initializers.RandomUniform(-limit, limit),
        )

    def call(self, first: Tensor, second: Tensor) -> Tensor:
        """Maps (batch_size, first width) and (batch_size, second width) to (batch_size, outputs)."""
        x, y = (
            ops.reshape(stream, (-1, self.heads, width))
            for stream, width in zip((first, second), self.head_widths, strict=True)
        )
        of_first = ops.reshape(
            ops.einsum("bhx,hxk->bhk", x, self.kernel), (-1, self.heads, self.head_widths[1], self.outputs)
        )
        products = ops.sum(of_first * y[..., None], axis=(1, 2))
        return self.first(first) + self.second(second) + products

    def compute_output_shape(self, first_shape: Shape, second_shape: Shape) -> Shape:
        return (first_shape[0], self.outputs)

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), outputs=self.outputs, heads=self.heads)
