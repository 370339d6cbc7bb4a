"""Attention-Net: top-k self-attention over the fields, then an MLP."""

from collections.abc import Sequence
from typing import Any

import keras

from models.ctr_model import CTRModel, attention_of, require_fields, require_layers
from models.feature_map import FeatureMap
from models.layers.top_k_self_attention import TopKSelfAttention
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class AttentionNet(CTRModel):
    """E -> `layers` x TopKSelfAttention -> concat -> MLP -> logit.

    Args:
        feature_map: The description of the packed tensors; needs at least one field.
        embedding_dim: d (paper: 32).
        layers: Number of attention layers l (paper: 3).
        heads: h (paper: 4).
        top_k: k (paper: 5), or None for plain attention.
        hidden_units: Widths of the MLP (paper: 600-400 for Criteo, 400-200 for Avazu).
        activation: Activation of the MLP's hidden layers.
        dropout: Rate after each hidden layer of the MLP.
        l2: λ of λ/2·‖W‖² on the MLP's kernels.
        **options: See CTRModel.

    References:
        "Learning Representations of Categorical Feature Combinations via Self-Attention", section 3.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        embedding_dim: int = 32,
        layers: int = 3,
        heads: int = 4,
        top_k: int | None = 5,
        hidden_units: Sequence[int] = (600, 400),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("attention_net", feature_map)
        require_layers(layers)
        if embedding_dim % heads:
            raise ValueError(f"`heads` should divide embedding_dim {embedding_dim}. Received: heads={heads}")
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.attention = [TopKSelfAttention(heads, top_k, name=f"attention_{index}") for index in range(layers)]
        self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        for layer in self.attention:
            rows = layer(rows)
        return self.tower(self.flatten(rows, inputs), training=training)

    def attention_maps(self, inputs: Inputs) -> list[Tensor]:
        """Each layer's attention, (batch_size, heads, fields, fields)."""
        return attention_of(self.attention, self.rows(inputs))
