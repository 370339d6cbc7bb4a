"""Attentional factorisation machine."""

from typing import Any

import keras

from models.ctr_model import CTRModel, require_one_task
from models.feature_map import FeatureMap
from models.layers.attentional_pooling import AttentionalPooling
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class AFM(CTRModel):
    """logit = linear part + pᵀ Σ_{i<j} a_ij (e_i ∘ e_j).

    Args:
        feature_map: The description of the packed tensors; one task.
        attention_units: Width of the attention network.
        dropout: Rate on the pooled interaction.
        l2: λ of λ/2·‖W‖² on the attention network.
        use_linear: The linear part.
        **options: See CTRModel.

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
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.pooling = AttentionalPooling(attention_units, dropout, l2, name="pooling")
        self.projection = keras.layers.Dense(1, use_bias=False, name="projection")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.projection(self.pooling(rows, training=training))

    def attention_map(self, inputs: Inputs) -> Tensor:
        """The weight of every pair (see layers.pairs), (batch_size, pairs)."""
        return self.pooling(self.rows(inputs), return_attention=True)[1]
