"""Logistic regression."""

import keras
from keras import ops

from models.ctr_model import CTRModel, batch_size
from models.feature_map import FeatureMap
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class LR(CTRModel):
    """logit = b + Σ_f w[id_f] + Σ_d v_d x_d. Starts from zero.

    Args:
        feature_map: The description of the packed tensors.
        l2: λ of λ/2·Σ w² on the weights that a row of the batch touches, mean over the batch.
        linear_rate: Factor on the learning rate (see CTRModel); a baseline shares the optimizer's setting.
    """

    def __init__(self, feature_map: FeatureMap, *, l2: float = 0.0, linear_rate: float = 1.0, name: str | None = None):
        super().__init__(
            feature_map, embedding_dim=0, use_linear=True, linear_l2=l2, linear_rate=linear_rate, name=name
        )

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return ops.zeros((batch_size(inputs), self.tasks))
