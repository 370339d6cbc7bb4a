"""FiBiNET."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.bilinear_interaction import BilinearInteraction
from ctrpipe.models.layers.squeeze_excitation import SqueezeExcitation


@keras.saving.register_keras_serializable(package="ctrpipe")
class FiBiNET(CTRModel):
    """FiBiNET: an MLP on bilinear products of the embeddings and of their reweighted copies.

    `logit = linear part + MLP([Bilinear_1(E), Bilinear_2(SENET(E))])`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least two fields or dense features.
        reduction: int. Number of fields divided by the width of SENET's hidden layer. Defaults to 3.
        excitation: str. Activation of SENET's weights. Defaults to "relu".
        bilinear: str. "all": one matrix for all pairs; "each": one per first field; "interaction": one per pair.
            Defaults to "interaction".
        hidden_units: sequence of int. Widths of the MLP. Defaults to (400, 400, 400).
        activation: str. Activation of the MLP. Defaults to "relu".
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the MLP's kernels. Defaults to 0.
        use_linear: bool. Whether to add a linear part. Defaults to True.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = FiBiNET(feature_map, embedding_dim=4, hidden_units=(8,))
        >>> keras.ops.shape(model({"ids": keras.ops.array([[3, 105], [7, 110]])}))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has fewer than two fields and dense features, or an option is invalid.

    References:
        Huang et al., "FiBiNET: Combining Feature Importance and Bilinear feature Interaction for Click-Through Rate
        Prediction", 2019.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        reduction: int = 3,
        excitation: str = "relu",
        bilinear: str = "interaction",
        hidden_units: Sequence[int] = (400, 400, 400),
        activation: str = "relu",
        dropout: float | Sequence[float] = 0.0,
        l2: float = 0.0,
        use_linear: bool = True,
        **options: Any,
    ) -> None:
        require_fields("fibinet", feature_map)
        if len(feature_map.fields) + len(feature_map.dense) < 2:
            raise ValueError("fibinet multiplies pairs of features; there is one, give a second or another model")
        super().__init__(feature_map, use_linear=use_linear, **options)
        self.senet = SqueezeExcitation(reduction, excitation, name="senet")
        self.products = [BilinearInteraction(bilinear, name=f"products_{number}") for number in (1, 2)]
        self.tower = self.mlp(hidden_units, self.tasks, activation, dropout, l2, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        sides = zip(self.products, (rows, self.senet(rows)), strict=True)
        products = ops.concatenate([layer(side) for layer, side in sides], axis=1)
        return self.tower(ops.reshape(products, (-1, products.shape[1] * products.shape[2])), training=training)
