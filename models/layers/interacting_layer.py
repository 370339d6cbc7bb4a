"""AutoInt's interacting layer."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.softmax_product import softmax_product


@keras.saving.register_keras_serializable(package="ctrpipe")
class InteractingLayer(keras.layers.Layer):
    """Self-attention over the fields with a projected residual.

    `output_i = relu(concat_h(softmax_j(<W_q e_i, W_k e_j>) W_v e_j) + W_res e_i)`.

    Args:
        dim: int. Width of all heads together; a head has the width dim / heads.
        heads: int. Number of heads. Defaults to 2.
        use_residual: bool. Whether to add W_res e_i. Defaults to True.
        scaled: bool. Whether to divide the scores by sqrt(dim / heads); the paper does not scale. Defaults to False.

    Example:
        >>> rows = keras.random.normal((2, 4, 8))  # (batch_size, fields, dim)
        >>> keras.ops.shape(InteractingLayer(dim=6)(rows))
        (2, 4, 6)

    Raises:
        ValueError: `heads` is not positive or does not divide `dim`.

    References:
        Song et al., "AutoInt: Automatic Feature Interaction Learning via Self-Attentive Neural Networks", 2019,
        equations 5 to 8.
    """

    def __init__(
        self, dim: int, heads: int = 2, use_residual: bool = True, scaled: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        if heads < 1 or dim % heads:
            raise ValueError(f"`heads` should be positive and divide dim {dim}. Received: heads={heads}")
        self.dim = dim
        self.heads = heads
        self.use_residual = use_residual
        self.scaled = scaled

    def build(self, input_shape: Shape) -> None:
        for name in ("query", "key", "value") + (("residual",) if self.use_residual else ()):
            weight = self.add_weight(name=name, shape=(input_shape[2], self.dim), initializer="glorot_uniform")
            setattr(self, name, weight)

    def call(self, inputs: Tensor, return_attention: bool = False) -> Tensor:
        """Maps (batch_size, fields, width) to (batch_size, fields, dim).

        With `return_attention`, also returns the attention, float32 (batch_size, heads, fields, fields).
        """
        fields, width = inputs.shape[1], self.dim // self.heads
        weights = [ops.convert_to_tensor(weight) for weight in (self.query, self.key, self.value)]
        projected = ops.matmul(inputs, ops.concatenate(weights, axis=1))
        projected = ops.reshape(projected, (-1, fields, 3 * self.heads, width))
        # Split after the transposition: slices along a row's width are slow to take and to concatenate again.
        query, key, value = ops.split(ops.transpose(projected, (0, 2, 1, 3)), 3, axis=1)
        scores = ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32")
        scores = scores / width**0.5 if self.scaled else scores
        mixed = ops.transpose(softmax_product(scores, value), (0, 2, 1, 3))
        mixed = ops.reshape(mixed, (-1, fields, self.dim))
        outputs = ops.relu(mixed + ops.matmul(inputs, self.residual) if self.use_residual else mixed)
        return (outputs, ops.softmax(scores, axis=-1)) if return_attention else outputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[1], self.dim)

    def get_config(self) -> dict[str, Any]:
        return dict(
            super().get_config(), dim=self.dim, heads=self.heads, use_residual=self.use_residual, scaled=self.scaled
        )
