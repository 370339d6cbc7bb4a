"""Deep & Cross network, first version."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.ctr_model import CTRModel, require_layers
from models.feature_map import FeatureMap
from models.layers.tower import Tower
from models.layers.vector_cross import VectorCross
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class DCN(CTRModel):
    """logit = wᵀ [x_L ; h], the cross network beside an MLP.

    Args:
        feature_map: The description of the packed tensors.
        layers: Number of cross layers.
        hidden_units: Widths of the MLP's layers.
        activation: Activation of the MLP.
        dropout: Rate after each layer of the MLP.
        l2: λ of λ/2·‖W‖² on the MLP's kernels.
        **options: See CTRModel.

    References:
        Wang et al., "Deep & Cross Network for Ad Click Predictions", 2017.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        hidden_units: Sequence[int] = (400, 400),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_layers(layers)
        super().__init__(feature_map, **options)
        self.crosses = [VectorCross(name=f"cross_{index}") for index in range(layers)]
        self.tower = Tower(hidden_units, None, activation, dropout, l2, name="tower")
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x0 = x = self.flatten(rows, inputs)
        for layer in self.crosses:
            x = layer(x0, x)
        return self.logit(ops.concatenate([x, self.tower(x0, training=training)], axis=1))
