"""Dense features as rows that interact like embeddings."""

from typing import Any

import keras
from keras import ops

from models.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class DenseEmbedding(keras.layers.Layer):
    """Row d of the output is x_d v_d: the factorisation machine's treatment of a real-valued feature.

    Args:
        dim: Width of v_d.
        stddev: Standard deviation of the initial values.

    References:
        Rendle, "Factorization Machines", 2010, equation 1.
    """

    def __init__(self, dim: int, stddev: float = 0.001, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if dim < 1:
            raise ValueError(f"`dim` should be positive. Received: dim={dim}")
        self.dim = dim
        self.stddev = stddev

    def build(self, input_shape: Shape) -> None:
        self.vectors = self.add_weight(
            name="vectors",
            shape=(input_shape[1], self.dim),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, inputs: Tensor) -> Tensor:
        """(batch_size, features) -> (batch_size, features, dim)."""
        return ops.expand_dims(inputs, -1) * self.vectors

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.dim)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        config.update(dim=self.dim, stddev=self.stddev)
        return config
