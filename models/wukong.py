"""Wukong."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_one_rate, require_positive
from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.wukong_layer import WukongLayer


@keras.saving.register_keras_serializable(package="ctrpipe")
class Wukong(CTRModel):
    """Wukong: stacked factorization machines whose outputs are embeddings again.

    `X_{l+1} = LayerNorm([FMB(X_l); LCB(X_l)] + R_l X_l)`, `logit = MLP(flatten(X_L))`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        layers: int. Number of Wukong layers. Defaults to 3.
        products: int. Number of embeddings from the factorization machine block of each layer. Defaults to 16.
        compressed: int. Number of embeddings from the linear compression block of each layer. Defaults to 16.
        rank: int. Rank of the factorization machines' products. Defaults to 8.
        block_units: sequence of int. Widths of the MLP of each factorization machine block. Defaults to (32, 32).
        normalises: bool. Whether each layer ends in layer normalisation. Defaults to True.
        hidden_units: sequence of int. Widths of the MLP at the end. Defaults to (32, 32).
        activation: str. Activation of that MLP. Defaults to "relu".
        dropout: float. Dropout rate of all MLPs. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the kernels of the MLP at the end. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = Wukong(feature_map, embedding_dim=4, layers=2, products=2, compressed=2, rank=2)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, or a size is not positive.

    References:
        Zhang et al., "Wukong: Towards a Scaling Law for Large-Scale Recommendation", 2024.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        products: int = 16,
        compressed: int = 16,
        rank: int = 8,
        block_units: Sequence[int] = (32, 32),
        normalises: bool = True,
        hidden_units: Sequence[int] = (32, 32),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("wukong", feature_map)
        require_positive(layers=layers)
        require_one_rate(dropout)
        super().__init__(feature_map, **options)
        self.stack = [
            WukongLayer(products, compressed, rank, block_units, dropout, normalises, name=f"layer_{index}")
            for index in range(layers)
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        for layer in self.stack:
            rows = layer(rows, training=training)
        return self.tower(ops.reshape(rows, (-1, rows.shape[1] * rows.shape[2])), training=training)
