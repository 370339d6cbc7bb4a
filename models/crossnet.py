"""The cross network of DCN, without the MLP."""

from typing import Any

import keras

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.vector_cross import VectorCross


@keras.saving.register_keras_serializable(package="ctrpipe")
class CrossNet(CTRModel):
    """The cross network of DCN, without the MLP.

    `logit = wᵀ x_L + b` with `x_{l+1} = x_0 (x_lᵀ w_l) + b_l + x_l`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        layers: int. Number of cross layers. Defaults to 3.
        use_bias: bool. Whether the cross layers have b_l; if not, x_L is a scalar multiple of x_0. Defaults to True.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = CrossNet(feature_map, embedding_dim=4, layers=2)
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: `layers` is not positive.

    References:
        Wang et al., "Deep & Cross Network for Ad Click Predictions", 2017, section 2.2; "CrossNet" of xDeepFM's Table
        2.
    """

    may_embed_dense = True

    def __init__(self, feature_map: FeatureMap, *, layers: int = 3, use_bias: bool = True, **options: Any) -> None:
        require_positive(layers=layers)
        super().__init__(feature_map, **options)
        self.crosses = [VectorCross(use_bias, name=f"cross_{index}") for index in range(layers)]
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def cross(self, rows: Tensor, inputs: Inputs) -> Tensor:
        """Returns the output of the last cross layer, (batch_size, width)."""
        x0 = x = self.flatten(rows, inputs)
        for layer in self.crosses:
            x = layer(x0, x)
        return x

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.logit(self.cross(rows, inputs))
