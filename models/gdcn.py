"""Gated deep and cross network."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.gated_cross import GatedCross


@keras.saving.register_keras_serializable(package="ctrpipe")
class GDCN(CTRModel):
    """Gated deep and cross network: cross layers with an information gate, parallel to an MLP or below it.

    `x_{l+1} = x_0 ∘ (W_l x_l + b_l) ∘ sigmoid(V_l x_l) + x_l`. "parallel" (GDCN-P): `logit = wᵀ [x_L, MLP(x_0)] + b`;
    "stacked" (GDCN-S): `logit = MLP(x_L)`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        layers: int. Number of gated cross layers. Defaults to 3.
        structure: str. "parallel" or "stacked". Defaults to "parallel".
        hidden_units: sequence of int. Widths of the MLP. Defaults to (400, 400).
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = GDCN(feature_map, embedding_dim=4, layers=2, hidden_units=(8,))
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: `layers` is not positive, or `structure` is unknown.

    References:
        Wang et al., "Towards Deeper, Lighter and Interpretable Cross Network for CTR Prediction", 2023.
    """

    may_embed_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        structure: str = "parallel",
        hidden_units: Sequence[int] = (400, 400),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_positive(layers=layers)
        if structure not in ("parallel", "stacked"):
            raise ValueError(f"`structure` should be 'parallel' or 'stacked'. Received: structure={structure!r}")
        super().__init__(feature_map, **options)
        self.structure = structure
        self.crosses = [GatedCross(name=f"cross_{index}") for index in range(layers)]
        outputs = self.tasks if structure == "stacked" else None
        self.tower = self.mlp(hidden_units, outputs, activation, dropout, l2, name="tower")
        self.logit = keras.layers.Dense(self.tasks, name="logit") if structure == "parallel" else None

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x0 = x = self.flatten(rows, inputs)
        for layer in self.crosses:
            x = layer(x0, x)
        if self.logit is None:
            return self.tower(x, training=training)
        return self.logit(ops.concatenate([x, self.tower(x0, training=training)], axis=1))
