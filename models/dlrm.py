"""Deep learning recommendation model."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops
from keras_rs.layers import DotInteraction

from models.ctr_model import CTRModel, require_fields
from models.feature_map import FeatureMap
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class DLRM(CTRModel):
    """MLP(concat(bottom, <e_i, e_j> for i < j)): the bottom MLP makes one more embedding out of the dense features.

    The products are keras-rs's DotInteraction.

    Args:
        feature_map: The description of the packed tensors.
        bottom_units: Widths of the hidden layers of the bottom MLP, which ends in the embedding's width.
        hidden_units: Widths of the hidden layers of the top MLP.
        activation: Activation of both.
        dropout: Rate after each hidden layer of the top MLP.
        l2: λ of λ/2·‖W‖² on the kernels of both.
        **options: See CTRModel.

    References:
        Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems", 2019.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        bottom_units: Sequence[int] = (512, 256),
        hidden_units: Sequence[int] = (512, 256),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        embedding_dim: int = 16,
        **options: Any,
    ) -> None:
        require_fields("dlrm", feature_map)
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.bottom = None
        if feature_map.dense:
            self.bottom = Tower((*bottom_units, embedding_dim), None, activation, 0.0, l2, name="bottom")
        self.dot = DotInteraction(name="dot")
        self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        vectors = [rows[:, field] for field in range(rows.shape[1])]
        bottom = [self.bottom(inputs["dense"], training=training)] if self.bottom is not None else []
        return self.tower(ops.concatenate([*bottom, self.dot([*bottom, *vectors])], axis=1), training=training)
