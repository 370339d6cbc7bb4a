"""Bilinear products of pairs of fields (FiBiNET)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.pairs import pair_indices

KINDS = ("all", "each", "interaction")


@keras.saving.register_keras_serializable(package="ctrpipe")
class BilinearInteraction(keras.layers.Layer):
    """Products of pairs of fields, with the first field multiplied by a matrix.

    `p_ij = (e_i W) ∘ e_j` for i < j, in the order (0, 1), (0, 2), ..., (1, 2), ...

    Args:
        kind: str. "all": one matrix W; "each": one per first field, W_i; "interaction": one per pair, W_ij. Defaults to
            "interaction".

    Example:
        >>> rows = keras.random.normal((2, 4, 3))  # (batch_size, fields, dim)
        >>> keras.ops.shape(BilinearInteraction("each")(rows))  # (batch_size, pairs, dim)
        (2, 6, 3)

    Raises:
        ValueError: `kind` is unknown.

    References:
        Huang et al., "FiBiNET: Combining Feature Importance and Bilinear feature Interaction for Click-Through Rate
        Prediction", 2019, equations 6 to 8.
    """

    def __init__(self, kind: str = "interaction", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if kind not in KINDS:
            raise ValueError(f"`bilinear` should be one of {KINDS}. Received: {kind!r}")
        self.kind = kind

    def build(self, input_shape: Shape) -> None:
        fields, dim = input_shape[1:]
        self.first, self.second = pair_indices(fields)
        counts = {"all": (), "each": (fields - 1,), "interaction": (len(self.first),)}
        limit = (3 / dim) ** 0.5  # Glorot's for one matrix
        self.kernel = self.add_weight(
            name="kernel",
            shape=(*counts[self.kind], dim, dim),
            initializer=keras.initializers.RandomUniform(-limit, limit),
        )

    def call(self, inputs: Tensor) -> Tensor:
        """Maps (batch_size, fields, dim) to (batch_size, pairs, dim)."""
        right = ops.take(inputs, self.second, axis=1)
        if self.kind == "interaction":
            left = ops.einsum("bpd,pdk->bpk", ops.take(inputs, self.first, axis=1), self.kernel)
        elif self.kind == "each":
            left = ops.take(ops.einsum("bfd,fdk->bfk", inputs[:, :-1], self.kernel), self.first, axis=1)
        else:
            left = ops.take(ops.matmul(inputs, self.kernel), self.first, axis=1)
        return left * right

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[1] * (input_shape[1] - 1) // 2, input_shape[2])

    def get_config(self) -> dict[str, Any]:
        return dict(super().get_config(), kind=self.kind)
