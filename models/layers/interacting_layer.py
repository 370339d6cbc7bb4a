"""AutoInt's interacting layer."""

from typing import Any

import keras
from keras import ops

from models.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class InteractingLayer(keras.layers.Layer):
    """Self-attention over the fields with a projected residual.

    `output_i = relu(concat_h(softmax_j(<W_q e_i, W_k e_j>) W_v e_j) + W_res e_i)`.

    Args:
        dim: int. Width of all heads together; a head has the width dim / heads.
        heads: int. Number of heads. Defaults to 2.
        use_residual: bool. Whether to add W_res e_i. Defaults to True.
        scaled: bool. Whether to divide the scores by sqrt(dim / heads), which the paper does not do. Defaults to False.

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
        weights = [self.query, self.key, self.value] + ([self.residual] if self.use_residual else [])
        projected = ops.matmul(inputs, ops.concatenate([ops.convert_to_tensor(w) for w in weights], axis=1))
        parts = ops.split(projected, len(weights), axis=-1)  # the gradient of slices takes several times as long
        query, key, value = (
            ops.transpose(ops.reshape(part, (-1, fields, self.heads, width)), (0, 2, 1, 3)) for part in parts[:3]
        )
        scores = ops.cast(ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))), "float32")
        attention = ops.softmax(scores / width**0.5 if self.scaled else scores, axis=-1)
        mixed = ops.matmul(ops.cast(attention, value.dtype), value)
        mixed = ops.reshape(ops.transpose(mixed, (0, 2, 1, 3)), (-1, fields, self.dim))
        outputs = ops.relu(mixed + parts[3] if self.use_residual else mixed)
        return (outputs, attention) if return_attention else outputs

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[1], self.dim)

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        config.update(dim=self.dim, heads=self.heads, use_residual=self.use_residual, scaled=self.scaled)
        return config
