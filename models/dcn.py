"""Deep & Cross network, first version."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.vector_cross import VectorCross


@keras.saving.register_keras_serializable(package="ctrpipe")
class DCN(CTRModel):
    """Deep & Cross network, first version: a cross network in parallel to an MLP.

    `logit = wᵀ [x_L ; h] + b`, where x_L is the output of the cross network (see VectorCross) and h of the MLP.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        layers: int. Number of cross layers. Defaults to 3.
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (400, 400).
        activation: str. Activation of the hidden layers. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = DCN(feature_map, embedding_dim=4, layers=2, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: `layers` is not positive.

    References:
        Wang et al., "Deep & Cross Network for Ad Click Predictions", 2017.
    """

    may_embed_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        hidden_units: Sequence[int] = (400, 400),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_positive(layers=layers)
        super().__init__(feature_map, **options)
        self.crosses = [VectorCross(name=f"cross_{index}") for index in range(layers)]
        self.tower = self.mlp(hidden_units, None, activation, dropout, l2, name="tower")
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x0 = x = self.flatten(rows, inputs)
        for layer in self.crosses:
            x = layer(x0, x)
        return self.logit(ops.concatenate([x, self.tower(x0, training=training)], axis=1))
