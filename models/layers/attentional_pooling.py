"""Pooling of pairwise products, weighted by an attention network (AFM)."""

from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.tensors import Shape, Tensor
from ctrpipe.models.layers.pairs import pair_indices


@keras.saving.register_keras_serializable(package="ctrpipe")
class AttentionalPooling(keras.layers.Layer):
    """Sums the element-wise products of all pairs of fields, weighted by an attention network.

    `output = Σ_{i<j} a_ij (e_i ∘ e_j)`, where `a = softmax(hᵀ relu(W (e_i ∘ e_j) + b))` over the pairs.

    Args:
        units: int. Width t of the attention network. Defaults to 16.
        dropout: float. Dropout rate of the output. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖². Defaults to 0.

    Example:
        >>> rows = keras.random.normal((2, 4, 8))  # (batch_size, fields, dim)
        >>> keras.ops.shape(AttentionalPooling(units=3)(rows))
        (2, 8)

    Raises:
        ValueError: `units` is not positive.

    References:
        Xiao et al., "Attentional Factorization Machines", 2017, equations 4 to 6.
    """

    def __init__(self, units: int = 16, dropout: float = 0.0, l2: float = 0.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        require_positive(units=units)
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
        """Maps (batch_size, fields, dim) to (batch_size, dim).

        With `return_attention`, also returns the weights of the pairs, float32 (batch_size, pairs), in the order of
        layers.pairs.
        """
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
        return dict(super().get_config(), units=self.units, dropout=self.dropout, l2=self.l2)
