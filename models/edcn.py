"""Enhanced deep and cross network."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.bridge import Bridge
from ctrpipe.models.layers.regulation import Regulation
from ctrpipe.models.layers.tower import rates_of_layers
from ctrpipe.models.layers.vector_cross import VectorCross


@keras.saving.register_keras_serializable(package="ctrpipe")
class EDCN(CTRModel):
    """Enhanced deep and cross network: a cross network and an MLP that exchange their states after every layer.

    `c_l = x_0 (w_lᵀ x_l) + b_l + x_l`, `h_l = act(W_l y_l + d_l)`, `f_l = Bridge(c_l, h_l)` and
    `x_{l+1}, y_{l+1} = Regulation_{l+1}(f_l)`. `logit = wᵀ [c_L, h_L, f_L] + b`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        layers: int. Number of layers of both networks. Defaults to 3.
        bridge: str. "product", "sum", "concat" or "attention". Defaults to "product".
        temperature: float. Temperature of the fields' gates. Defaults to 1.
        residual: bool. Whether a cross layer adds its input, as in the paper; FuxiCTR's does not. Defaults to True.
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each layer of the MLP. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = EDCN(feature_map, embedding_dim=4, layers=2)
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field, `layers` or `temperature` is not positive, or `bridge` is unknown.

    References:
        Chen et al., "Enhancing Explicit and Implicit Feature Interactions via Information Sharing for Parallel Deep CTR
        Models", 2021.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        layers: int = 3,
        bridge: str = "product",
        temperature: float = 1.0,
        residual: bool = True,
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        embedding_dim: int = 16,
        **options: Any,
    ) -> None:
        require_fields("edcn", feature_map)
        require_positive(layers=layers)
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        width = (len(feature_map.fields) + len(feature_map.dense)) * embedding_dim
        self.residual = residual
        numbers, rates = range(layers), rates_of_layers(dropout, range(layers))
        self.regulations = [Regulation(embedding_dim, temperature, name=f"regulation_{index}") for index in numbers]
        self.crosses = [VectorCross(name=f"cross_{index}") for index in numbers]
        self.deep = [self.mlp((width,), None, activation, rates[index], name=f"deep_{index}") for index in numbers]
        self.bridges = [Bridge(bridge, name=f"bridge_{index}") for index in numbers]
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        joined = self.flatten(rows, inputs)
        first: Tensor = None
        for regulation, cross, deep, bridge in zip(
            self.regulations, self.crosses, self.deep, self.bridges, strict=True
        ):
            crossed, hidden = regulation(joined)
            first = crossed if first is None else first
            crossed = cross(first, crossed) - (0.0 if self.residual else crossed)
            hidden = deep(hidden, training=training)
            joined = bridge(crossed, hidden)
        return self.logit(ops.concatenate([crossed, hidden, joined], axis=1))
