"""Convolutional click prediction model."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.ctr_model import CTRModel, require_fields
from models.feature_map import FeatureMap
from models.layers.k_max_convolution import KMaxConvolution
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor


@keras.saving.register_keras_serializable(package="ctrpipe")
class CCPM(CTRModel):
    """Convolutions along the fields with flexible k-max pooling, then an MLP. The order of the fields matters.

    Layer i of l keeps (1 - (i/l)^(l-i)) of the fields, the last one keeps 3.

    Args:
        feature_map: The description of the packed tensors.
        filters: Channels of each convolution.
        widths: Fields under the filter of each convolution.
        hidden_units: Widths of the hidden layers.
        activation: Activation of the hidden layers.
        dropout: Rate after each hidden layer.
        l2: λ of λ/2·‖W‖² on the MLP's kernels.
        **options: See CTRModel.

    References:
        Liu et al., "A Convolutional Click Prediction Model", 2015.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        filters: Sequence[int] = (4, 4),
        widths: Sequence[int] = (6, 5),
        hidden_units: Sequence[int] = (256,),
        activation: str = "relu",
        dropout: float = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("ccpm", feature_map)
        if len(filters) != len(widths) or not filters:
            raise ValueError(f"`filters` and `widths` should be as many. Received: filters={filters}, widths={widths}")
        super().__init__(feature_map, **options)
        fields, last = len(feature_map.fields) + len(feature_map.dense), len(filters)
        keeps = [max(1, int((1 - (i / last) ** (last - i)) * fields)) if i < last else 3 for i in range(1, last + 1)]
        self.convolutions = [
            KMaxConvolution(count, width, keep, name=f"convolution_{index}")
            for index, (count, width, keep) in enumerate(zip(filters, widths, keeps, strict=True))
        ]
        self.tower = Tower(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        maps = ops.expand_dims(rows, -1)
        for convolution in self.convolutions:
            maps = convolution(maps)
        _, kept, dim, channels = maps.shape
        return self.tower(ops.reshape(maps, (-1, kept * dim * channels)), training=training)
