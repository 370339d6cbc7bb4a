"""The cross network of DCN alone."""

from typing import Any

import keras

from models.ctr_model import CTRModel, require_layers
from models.feature_map import FeatureMap
from models.layers.vector_cross import VectorCross
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class CrossNet(CTRModel):
    """logit = wᵀ x_L, x_{l+1} = x_0 (x_lᵀ w_l) + b_l + x_l: xDeepFM's single component "CrossNet" (its Table 2).

    Args:
        feature_map: The description of the packed tensors.
        layers: Number of cross layers.
        use_bias: Whether the cross layers have b_l; without, x_L is a scalar multiple of x_0.
        **options: See CTRModel.

    References:
        Wang et al., "Deep & Cross Network for Ad Click Predictions", 2017, section 2.2.
    """

    def __init__(self, feature_map: FeatureMap, *, layers: int = 3, use_bias: bool = True, **options: Any) -> None:
        require_layers(layers)
        super().__init__(feature_map, **options)
        self.crosses = [VectorCross(use_bias, name=f"cross_{index}") for index in range(layers)]
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def cross(self, rows, inputs):
        """The output of the last cross layer, (batch_size, width)."""
        x0 = x = self.flatten(rows, inputs)
        for layer in self.crosses:
            x = layer(x0, x)
        return x

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.logit(self.cross(rows, inputs))
