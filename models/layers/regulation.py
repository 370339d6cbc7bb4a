"""Field-wise gates of two parallel networks (EDCN)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class Regulation(keras.layers.Layer):
    """Gives two parallel networks their own copies of the features, with a weight for each field.

    `output_n = [g_n1 e_1, ..., g_nF e_F]` with `g_n = softmax(γ_n / τ)` for n = 1, 2.

    Args:
        dim: int. Width of a field in the features.
        temperature: float. τ. Defaults to 1.

    Example:
        >>> first, second = Regulation(dim=3)(keras.random.normal((2, 6)))  # (batch_size, fields * dim)
        >>> keras.ops.shape(first), keras.ops.shape(second)
        ((2, 6), (2, 6))

    Raises:
        ValueError: `temperature` is not positive.

    References:
        Chen et al., "Enhancing Explicit and Implicit Feature Interactions via Information Sharing for Parallel Deep CTR
        Models", 2021, equations 9 and 10.
    """

    def __init__(self, dim: int, temperature: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not temperature > 0:
            raise ValueError(f"`temperature` should be positive. Received: {temperature}")
        self.dim = dim
        self.temperature = temperature

    def build(self, input_shape: Shape) -> None:
        self.gates = self.add_weight(name="gates", shape=(2, input_shape[-1] // self.dim), initializer="ones")

    def call(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Maps (batch_size, fields * dim) to a copy for each network, of the same shape."""
        weights = ops.softmax(ops.cast(self.gates, "float32") / self.temperature, axis=1)
        weights = ops.cast(ops.repeat(weights, self.dim, axis=1), inputs.dtype)
        return inputs * weights[0], inputs * weights[1]

    def compute_output_shape(self, input_shape: Shape) -> tuple[Shape, Shape]:
        return input_shape, input_shape

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), dim=self.dim, temperature=self.temperature)
