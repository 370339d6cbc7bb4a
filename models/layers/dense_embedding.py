"""Embeddings of dense features."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class DenseEmbedding(keras.layers.Layer):
    """Embeds real-valued features, for interactions with the embeddings of ids.

    `output_d = x_d v_d` for every feature d.

    Args:
        dim: int. Width of v_d.
        stddev: float. Standard deviation of the initial values. Defaults to 0.001.

    Example:
        >>> dense = keras.random.normal((2, 3))  # (batch_size, features)
        >>> keras.ops.shape(DenseEmbedding(dim=8)(dense))  # (batch_size, features, dim)
        (2, 3, 8)

    Raises:
        ValueError: `dim` is not positive.

    References:
        Rendle, "Factorization Machines", 2010, equation 1.
    """

    def __init__(self, dim: int, stddev: float = 0.001, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(dim=dim)
        self.dim = dim
        self.stddev = stddev

    def build(self, input_shape: Shape) -> None:
        self.vectors = self.add_weight(
            name="vectors",
            shape=(input_shape[1], self.dim),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, features) to (batch_size, features, dim)."""
        return ops.expand_dims(inputs, -1) * self.vectors

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.dim)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        config.update(dim=self.dim, stddev=self.stddev)
        return config
