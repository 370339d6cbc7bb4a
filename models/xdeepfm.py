"""xDeepFM."""

from collections.abc import Sequence
from typing import Any

import keras

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.cin import CIN


@keras.saving.register_keras_serializable(package="ctrpipe")
class XDeepFM(CIN):
    """xDeepFM: a linear part, an MLP and a compressed interaction network.

    `logit = w_linearᵀ a + w_dnnᵀ x_dnn + w_cinᵀ p⁺ + b`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        hidden_units: sequence of int. Widths of the MLP's layers; () for no MLP. Defaults to (400, 400).
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float. Dropout rate after each layer of the MLP. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of the MLP and the CIN. Defaults to 0.
        use_linear: bool. Whether to add the linear part. Defaults to True.
        **options: Options of CIN and CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = XDeepFM(feature_map, embedding_dim=4, maps=(6, 5), hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field.

    References:
        Lian et al., "xDeepFM: Combining Explicit and Implicit Feature Interactions for Recommender Systems", 2018,
        equation 15.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        hidden_units: Sequence[int] = (400, 400),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        use_linear: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, use_linear=use_linear, l2=l2, **options)
        self.tower = None
        if hidden_units:
            self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        explicit = super().interact(rows, inputs, training)
        if self.tower is None:
            return explicit
        return explicit + self.tower(self.flatten(rows, inputs), training=training)
