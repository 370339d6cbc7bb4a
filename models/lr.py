"""Logistic regression."""

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, batch_size
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class LR(CTRModel):
    """Logistic regression.

    `logit = b + Σ_f w[id_f] + Σ_d v_d x_d`. All weights start from zero.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        l2: float. Strength λ of the penalty λ/2·Σ w² on the weights of a row's ids, averaged over the batch. Defaults
            to 0.
        linear_rate: float. Factor on the learning rate (see CTRModel), for a baseline that shares the optimizer of
            another model. Defaults to 1.
        name: str. Name of the Keras model.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = LR(feature_map)
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)
    """

    def __init__(self, feature_map: FeatureMap, *, l2: float = 0.0, linear_rate: float = 1.0, name: str | None = None):
        super().__init__(
            feature_map, embedding_dim=0, use_linear=True, linear_l2=l2, linear_rate=linear_rate, name=name
        )

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return ops.zeros((batch_size(inputs), self.tasks))
