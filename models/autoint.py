"""AutoInt and AutoInt+."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.ctr_model import CTRModel, attention_of, require_fields, require_layers
from models.feature_map import FeatureMap
from models.layers.interacting_layer import InteractingLayer
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class AutoInt(CTRModel):
    """Interacting layers over the fields, flattened, then the logit.

    Args:
        feature_map: The description of the packed tensors.
        layers: Number of interacting layers.
        attention_dim: Width of all heads together.
        heads: Number of heads.
        use_residual, scaled: See InteractingLayer.
        hidden_units: Widths of an MLP on the encoded features (Hiformer's comparison); none: linear, as in the paper.
        deep_units: Widths of an MLP beside it, on the embeddings (AutoInt+); none leave it out.
        activation: Activation of both MLPs.
        dropout: Rate after each hidden layer of both MLPs.
        l2: λ of λ/2·‖W‖² on the kernels of both MLPs.
        **options: See CTRModel.

    References:
        Song et al., "AutoInt: Automatic Feature Interaction Learning via Self-Attentive Neural Networks", 2019.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        attention_dim: int = 64,
        heads: int = 2,
        use_residual: bool = True,
        scaled: bool = False,
        hidden_units: Sequence[int] = (),
        deep_units: Sequence[int] = (),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("autoint", feature_map)
        require_layers(layers)
        super().__init__(feature_map, **options)
        self.attention = [
            InteractingLayer(attention_dim, heads, use_residual, scaled, name=f"attention_{index}")
            for index in range(layers)
        ]
        self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")
        self.deep = Tower(deep_units, self.tasks, activation, dropout, l2, name="deep") if deep_units else None

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        encoded = rows
        for layer in self.attention:
            encoded = layer(encoded)
        encoded = ops.reshape(encoded, (-1, encoded.shape[1] * encoded.shape[2]))
        logits = self.tower(encoded, training=training)
        if self.deep is None:
            return logits
        return logits + self.deep(self.flatten(rows, inputs), training=training)

    def attention_maps(self, inputs: Inputs) -> list[Tensor]:
        """Each layer's attention, (batch_size, heads, fields, fields)."""
        return attention_of(self.attention, self.rows(inputs))
