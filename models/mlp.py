"""The vanilla MLP on concatenated embeddings."""

from collections.abc import Sequence
from typing import Any

import keras

from models.ctr_model import CTRModel
from models.feature_map import FeatureMap
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class MLP(CTRModel):
    """logit = MLP(concat(embeddings, dense)): Attention-Net's baseline without attention.

    Args:
        feature_map: The description of the packed tensors.
        hidden_units: Widths of the hidden layers (600-400 for Criteo, 400-200 for Avazu in the paper).
        activation: Activation of the hidden layers.
        dropout: Rate after each hidden layer.
        l2: λ of λ/2·‖W‖² on the MLP's kernels.
        **options: See CTRModel.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (600, 400),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, **options)
        self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.tower(self.flatten(rows, inputs), training=training)
