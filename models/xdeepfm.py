"""xDeepFM."""

from collections.abc import Sequence
from typing import Any

import keras

from models.cin import CIN
from models.feature_map import FeatureMap
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class XDeepFM(CIN):
    """logit = w_linearᵀ a + w_dnnᵀ x_dnn + w_cinᵀ p⁺ + b (equation 15).

    Args:
        feature_map: The description of the packed tensors.
        hidden_units: Widths of the DNN's layers; none leave it out.
        activation: Activation of the DNN.
        dropout: Rate after each layer of the DNN.
        l2: λ of λ/2·‖W‖² on the kernels of the DNN and the CIN.
        use_linear: The linear part.
        **options: See CIN and CTRModel.

    References:
        Lian et al., "xDeepFM: Combining Explicit and Implicit Feature Interactions for Recommender Systems", 2018.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (400, 400),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        use_linear: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, use_linear=use_linear, l2=l2, **options)
        self.tower = None
        if hidden_units:
            self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        explicit = super().interact(rows, inputs, training)
        if self.tower is None:
            return explicit
        return explicit + self.tower(self.flatten(rows, inputs), training=training)
