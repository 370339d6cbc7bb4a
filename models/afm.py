"""Attentional factorisation machine."""

from typing import Any

import keras

from ctrpipe.models.base.checks import require_one_rate
from ctrpipe.models.base.ctr_model import CTRModel, require_one_task
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.attentional_pooling import AttentionalPooling


@keras.saving.register_keras_serializable(package="ctrpipe")
class AFM(CTRModel):
    """Attentional factorisation machine: a factorisation machine that weights its pairs by attention.

    `logit = linear part + pᵀ Σ_{i<j} a_ij (e_i ∘ e_j)`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with one task.
        attention_units: int. Width of the attention network. Defaults to 16.
        dropout: float. Dropout rate on the pooled interaction. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the attention network. Defaults to 0.
        use_linear: bool. Whether to add the linear part. Defaults to True.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = AFM(feature_map, embedding_dim=4, attention_units=3)
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has several tasks.

    References:
        Xiao et al., "Attentional Factorization Machines", 2017, equation 7.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        attention_units: int = 16,
        dropout: float = 0.0,
        l2: float = 0.0,
        use_linear: bool = True,
        **options: Any,
    ) -> None:
        require_one_task("afm", feature_map)
        require_one_rate(dropout)
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.pooling = AttentionalPooling(attention_units, dropout, l2, name="pooling")
        self.projection = keras.layers.Dense(1, use_bias=False, name="projection")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.projection(self.pooling(rows, training=training))

    def attention_map(self, inputs: Inputs) -> Tensor:
        """Returns the attention weights of the pairs (see layers.pairs), float32 (batch_size, pairs)."""
        return self.pooling(self.rows(inputs), return_attention=True)[1]
