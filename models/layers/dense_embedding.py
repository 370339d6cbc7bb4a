"""Embeddings of dense features."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class DenseEmbedding(keras.layers.Layer):
    """Embeds real-valued features, for interactions with the embeddings of ids.

    `output_d = x_d v_d` for every number d, and `output_d = Σ_{i in d} x_i v_i` for a vector d: its linear projection.

    Args:
        dim: int. Width of v_d.
        stddev: float. Standard deviation of the initial values. Defaults to 0.001.
        widths: sequence of int. The number of columns of each feature: 1 for a number, more for a vector. Defaults to
            (), all are numbers.

    Example:
        >>> dense = keras.random.normal((2, 5))  # (batch_size, columns)
        >>> keras.ops.shape(DenseEmbedding(dim=8)(dense))  # (batch_size, features, dim)
        (2, 5, 8)
        >>> keras.ops.shape(DenseEmbedding(dim=8, widths=(1, 4))(dense))
        (2, 2, 8)

    Raises:
        ValueError: `dim` or a width is not positive.

    References:
        Rendle, "Factorization Machines", 2010, equation 1.
    """

    def __init__(self, dim: int, stddev: float = 0.001, widths: Sequence[int] = (), **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(dim=dim)
        if any(width < 1 for width in widths):
            raise ValueError(f"`widths` should be positive. Received: widths={tuple(widths)}")
        self.dim = dim
        self.stddev = stddev
        self.widths = tuple(widths)

    def build(self, input_shape: Shape) -> None:
        self.vectors = self.add_weight(
            name="vectors",
            shape=(input_shape[1], self.dim),
            initializer=keras.initializers.RandomNormal(stddev=self.stddev),
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, columns) to (batch_size, features, dim)."""
        if all(width == 1 for width in self.widths):
            return ops.expand_dims(inputs, -1) * self.vectors
        # Neighbouring numbers are embedded in one product, and each vector in one of its own.
        ends = np.cumsum(self.widths).tolist()
        is_number = np.array(self.widths) == 1
        starts = [place for place in range(len(ends)) if not place or not (is_number[place] and is_number[place - 1])]
        cuts = [ends[place - 1] for place in starts[1:]]
        vectors = ops.cast(ops.convert_to_tensor(self.vectors), inputs.dtype)
        columns_of = ops.split(inputs, cuts, axis=1) if cuts else [inputs]
        rows_of = ops.split(vectors, cuts, axis=0) if cuts else [vectors]
        pairs = zip(starts, columns_of, rows_of, strict=True)
        parts = [
            ops.expand_dims(columns, -1) * rows if is_number[place] else ops.expand_dims(ops.matmul(columns, rows), 1)
            for place, columns, rows in pairs
        ]
        return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], len(self.widths) or input_shape[1], self.dim)

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), dim=self.dim, stddev=self.stddev, widths=self.widths)
