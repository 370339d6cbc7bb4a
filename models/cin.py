"""The compressed interaction network alone."""

from collections.abc import Sequence
from typing import Any

import keras

from models.ctr_model import CTRModel, require_fields
from models.feature_map import FeatureMap
from models.layers.cin import CIN as CINLayer
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class CIN(CTRModel):
    """logit = wᵀ p⁺, the pooled maps of all layers: xDeepFM's single component "CIN" (its Table 2, equation 8).

    Args:
        feature_map: The description of the packed tensors.
        maps: Feature maps of each layer.
        split_half, cin_activation, rank: See layers.cin.
        l2: λ of λ/2·‖W‖² on the CIN's weights.
        **options: See CTRModel.

    References:
        Lian et al., "xDeepFM", 2018, section 3.1.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        maps: Sequence[int] = (200, 200, 200),
        split_half: bool = False,
        cin_activation: str = "linear",
        rank: int | None = None,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("cin", feature_map)
        super().__init__(feature_map, **options)
        self.cin = CINLayer(maps, split_half, cin_activation, rank, l2, name="cin")
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.logit(self.cin(rows))

    def feature_maps(self, inputs: Inputs) -> list[Tensor]:
        """The feature maps of every layer, (batch_size, H_k, embedding_dim) each."""
        return self.cin(self.rows(inputs), return_maps=True)[1]
