"""Convolutional click prediction model."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.k_max_convolution import KMaxConvolution


@keras.saving.register_keras_serializable(package="ctrpipe")
class CCPM(CTRModel):
    """Convolutional click prediction model: convolutions along the fields, then an MLP.

    `logit = MLP(concat(KMaxConvolution(... KMaxConvolution(E))))`. The order of the fields matters. With l layers,
    layer i keeps the share 1 - (i/l)^(l-i) of the fields, and the last layer keeps 3.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        filters: sequence of int. Output channels of each convolution. Defaults to (4, 4).
        widths: sequence of int. Width of each convolution's filter, in fields. Defaults to (6, 5).
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (256,).
        activation: str. Activation of the hidden layers. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = CCPM(feature_map, embedding_dim=4, filters=(2, 2), widths=(2, 2), hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, or `filters` and `widths` are empty or differ in length.

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
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("ccpm", feature_map)
        if len(filters) != len(widths) or not filters:
            raise ValueError(
                f"`filters` and `widths` should have the same length. Received: filters={filters}, widths={widths}"
            )
        super().__init__(feature_map, **options)
        fields, last = len(feature_map.fields) + len(feature_map.dense), len(filters)
        keeps = [max(1, int((1 - (i / last) ** (last - i)) * fields)) if i < last else 3 for i in range(1, last + 1)]
        self.convolutions = [
            KMaxConvolution(count, width, keep, name=f"convolution_{index}")
            for index, (count, width, keep) in enumerate(zip(filters, widths, keeps, strict=True))
        ]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        maps = ops.expand_dims(rows, -1)
        for convolution in self.convolutions:
            maps = convolution(maps)
        _, kept, dim, channels = maps.shape
        return self.tower(ops.reshape(maps, (-1, kept * dim * channels)), training=training)
