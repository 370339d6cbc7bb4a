"""Deep & Cross network, second version."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops
from keras_rs.layers import FeatureCross

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.explain.strengths import crossed


@keras.saving.register_keras_serializable(package="ctrpipe")
class DCNv2(CTRModel):
    """Deep & Cross network, second version: a cross network with weight matrices, and an MLP.

    `x_{l+1} = x_0 ∘ (W_l x_l + b_l) + x_l`, the FeatureCross of keras-rs.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        layers: int. Number of cross layers. Defaults to 3.
        rank: int. Rank r of W = U V (the paper's DCN-Mix with one expert), or None for full matrices. Defaults to None.
        structure: str. "parallel" for wᵀ [x_L ; MLP(x_0)], "stacked" for wᵀ MLP(x_L). Defaults to "parallel".
        hidden_units: sequence of int. Widths of the MLP's layers; () for a cross network without an MLP. Defaults to
            (400, 400).
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float. Dropout rate after each layer of the MLP. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's and the cross layers' kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = DCNv2(feature_map, embedding_dim=4, layers=2, rank=2, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: `layers` is not positive, or `structure` is unknown.

    References:
        Wang et al., "DCN V2", 2021, equations 1 and 4, section 3.3.
    """

    may_embed_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        rank: int | None = None,
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
        regularizer = keras.regularizers.L2(l2 / 2) if l2 else None
        self.crosses = [
            FeatureCross(projection_dim=rank, kernel_regularizer=regularizer, name=f"cross_{index}")
            for index in range(layers)
        ]
        self.tower = self.mlp(hidden_units, None, activation, dropout, l2, name="tower") if hidden_units else None
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        x0 = x = self.flatten(rows, inputs)
        for layer in self.crosses:
            x = layer(x0, x)
        if self.tower is None:
            return self.logit(x)
        if self.structure == "stacked":
            return self.logit(self.tower(x, training=training))
        return self.logit(ops.concatenate([x, self.tower(x0, training=training)], axis=1))

    def pair_strengths(self, covariances: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the strength of each pair of fields and dense features, (parts, parts).

        It is the norm of the standard deviations over rows of the first cross layer's products x_i ∘ (W_ij x_j) and x_j
        ∘ (W_ji x_i). The paper shows the norms of the blocks W_ij, which ignore the scale of the embeddings.

        Args:
            covariances: Covariance of each part's embedding over rows, (width, width) each.
        """
        cross = self.crosses[0]
        kernel = np.asarray(cross.dense.kernel)
        if cross.projection_dim is not None:
            kernel = np.asarray(cross.down_proj_dense.kernel) @ kernel
        return crossed(covariances, kernel.T)
