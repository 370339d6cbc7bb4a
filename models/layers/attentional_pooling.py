"""Pairwise interactions weighted by an attention network (AFM)."""

from typing import Any

import keras
from keras import ops

from models.layers.pairs import pair_indices
from models.tensors import Shape, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class AttentionalPooling(keras.layers.Layer):
    """Σ_{i<j} a_ij (e_i ∘ e_j), with a = softmax over the pairs of hᵀ relu(W (e_i ∘ e_j) + b).

    Args:
        units: Width of the attention network (the paper's t).
        dropout: Rate on the pooled interaction.
        l2: λ of λ/2·‖W‖².

    References:
        Xiao et al., "Attentional Factorization Machines", 2017, equations 4 to 6.
    """

    def __init__(self, units: int = 16, dropout: float = 0.0, l2: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if units < 1:
            raise ValueError(f"`units` should be positive. Received: units={units}")
        self.units = units
        self.dropout = dropout
        self.l2 = l2
        regularizer = keras.regularizers.L2(l2 / 2) if l2 else None
        policy = self.dtype_policy
        self.hidden = keras.layers.Dense(units, "relu", kernel_regularizer=regularizer, dtype=policy)
        self.score = keras.layers.Dense(1, use_bias=False, dtype=policy)
        self.drop = keras.layers.Dropout(dropout, dtype=policy)

    def build(self, input_shape: Shape) -> None:
        self.hidden.build((None, None, input_shape[2]))
        self.score.build((None, None, self.units))

    def call(self, inputs: Tensor, training: bool | None = None, return_attention: bool = False) -> Tensor:
        """(batch_size, fields, dim) -> (batch_size, dim), and with return_attention (batch_size, pairs)."""
        first, second = pair_indices(inputs.shape[1])
        products = ops.take(inputs, first, axis=1) * ops.take(inputs, second, axis=1)
        scores = ops.cast(self.score(self.hidden(products)), "float32")
        attention = ops.softmax(scores, axis=1)
        pooled = ops.sum(ops.cast(attention, products.dtype) * products, axis=1)
        pooled = self.drop(pooled, training=training)
        return (pooled, attention[:, :, 0]) if return_attention else pooled

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[0], input_shape[2])

    def get_config(self) -> dict[str, Any]:
        config: dict[str, Any] = super().get_config()
        config.update(units=self.units, dropout=self.dropout, l2=self.l2)
        return config
