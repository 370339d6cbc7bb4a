"""CCPM's layer: a convolution along the fields with k-max pooling."""

from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class KMaxConvolution(keras.layers.Layer):
    """Convolves along the fields, for each embedding dimension, and keeps the k largest values in their order.

    `output = tanh(k-max(W * E + b))`.

    The convolution has "same" padding. It is computed as a product with its banded matrix: with few fields and
    channels, this is several times faster than a convolution.

    Args:
        filters: int. Number of output channels.
        width: int. Width of the filter, in fields.
        keep: int. Number k of values to keep.

    Example:
        >>> maps = keras.random.normal((2, 6, 8, 1))  # (batch_size, fields, dim, channels)
        >>> keras.ops.shape(KMaxConvolution(filters=4, width=3, keep=2)(maps))
        (2, 2, 8, 4)

    Raises:
        ValueError: an argument is not positive.

    References:
        Liu et al., "A Convolutional Click Prediction Model", 2015, sections 3.2 and 3.3.
    """

    def __init__(self, filters: int, width: int, keep: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(filters=filters, width=width, keep=keep)
        self.filters = filters
        self.width = width
        self.keep = keep

    def build(self, input_shape: Shape) -> None:
        _, fields, _, channels = input_shape
        limit = (6 / (self.width * (channels + self.filters))) ** 0.5
        self.kernel = self.add_weight(
            name="kernel",
            shape=(self.width, channels, self.filters),
            initializer=keras.initializers.RandomUniform(-limit, limit),
        )
        self.bias = self.add_weight(name="bias", shape=(self.filters,), initializer="zeros")
        before = (self.width - 1) // 2
        offset = np.arange(fields)[:, None] - np.arange(fields)[None, :] + before  # input field, output field
        inside = (offset >= 0) & (offset < self.width)
        # The index into the kernel for each pair of fields; the index after the last stands for zero.
        self._part = np.where(inside, offset, self.width).astype(np.int32)

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim, channels) to (batch_size, min(keep, fields), dim, filters)."""
        _, fields, dim, channels = inputs.shape
        padded = ops.pad(self.kernel, ((0, 1), (0, 0), (0, 0)))
        banded = ops.take(padded, self._part.reshape(-1), axis=0)
        banded = ops.reshape(banded, (fields, fields, channels, self.filters))
        banded = ops.reshape(ops.transpose(banded, (2, 0, 3, 1)), (channels * fields, self.filters * fields))
        rows = ops.reshape(ops.transpose(inputs, (0, 2, 3, 1)), (-1, channels * fields))
        maps = ops.reshape(ops.matmul(rows, banded), (-1, self.filters, fields)) + ops.expand_dims(self.bias, -1)
        keep = min(self.keep, fields)
        if keep < fields:
            _, indices = ops.top_k(maps, keep, sorted=False)
            maps = ops.take_along_axis(maps, ops.sort(indices, axis=-1), axis=-1)
        maps = ops.reshape(ops.tanh(maps), (-1, dim, self.filters, keep))
        return ops.transpose(maps, (0, 3, 1, 2))

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], min(self.keep, input_shape[1]), input_shape[2], self.filters)

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), filters=self.filters, width=self.width, keep=self.keep)
