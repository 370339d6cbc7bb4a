"""Field-aware factorisation machine."""

from typing import Any

import keras

from models.ctr_model import CTRModel, require_one_task
from models.feature_map import FeatureMap
from models.layers.field_aware_interaction import FieldAwareInteraction
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class FFM(CTRModel):
    """logit = linear part + Σ_{i<j} <v_i^(j), v_j^(i)> x_i x_j: a vector for every other field.

    One row of the table holds an id's vectors for all fields, so that the table is fields times as wide as an FM's.

    Args:
        feature_map: The description of the packed tensors; one task.
        embedding_dim: Width of one vector.
        use_linear: The linear part.
        **options: See CTRModel.

    References:
        Juan et al., "Field-aware Factorization Machines for CTR Prediction", 2016, equation 4.
    """

    embeds_dense = True

    def __init__(
        self, feature_map: FeatureMap, *, embedding_dim: int = 4, use_linear: bool = True, **options: Any
    ) -> None:
        require_one_task("ffm", feature_map)
        width = embedding_dim * (len(feature_map.fields) + len(feature_map.dense))
        super().__init__(feature_map, embedding_dim=width, use_linear=use_linear, **options)
        self.interaction = FieldAwareInteraction(name="interaction")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.interaction(rows)
