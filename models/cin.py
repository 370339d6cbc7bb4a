"""The compressed interaction network as a model."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ctrpipe.models.base.ctr_model import CTRModel, require_fields
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.explain.strengths import inner_products
from ctrpipe.models.layers.cin import CIN as CINLayer


@keras.saving.register_keras_serializable(package="ctrpipe")
class CIN(CTRModel):
    """The compressed interaction network of xDeepFM, without the linear part and the MLP.

    `logit = wᵀ p⁺ + b`, where p⁺ are the pooled maps of all layers.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with at least one field.
        maps: sequence of int. Number of feature maps of each layer. Defaults to (200, 200, 200).
        split_half: bool. Whether each layer except the last pools the first half of its maps and passes on the second
            half. Defaults to False.
        cin_activation: str. Activation of the maps. Defaults to "linear", which the paper finds best.
        rank: int. Rank L of the low-rank weights (xDeepFM, equation 9); None for full weights. Defaults to None.
        l2: float. Strength λ of the penalty λ/2·‖W‖² on the CIN's weights. Defaults to 0.
        **options: Options of CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = CIN(feature_map, embedding_dim=4, maps=(6, 5))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no field.

    References:
        Lian et al., "xDeepFM", 2018, section 3.1, equation 8; "CIN" of its Table 2.
    """

    embeds_dense = True

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        maps: Sequence[int] = (200, 200, 200),
        split_half: bool = False,
        cin_activation: str = "linear",
        rank: int | None = None,
        l2: float = 0.0,
        **options: Any,
    ) -> None:
        require_fields("cin", feature_map)
        super().__init__(feature_map, **options)
        self.cin = CINLayer(maps, split_half, cin_activation, rank, l2, name="cin")
        self.logit = keras.layers.Dense(self.tasks, name="logit")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        return self.logit(self.cin(rows))

    def pair_strengths(self, covariances: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the strength of each pair of fields and dense features, (parts, parts).

        For each pair, the first layer adds Σ_h w_h (W_ij^h + W_ji^h) <e_i, e_j> to the logit. The strength is the
        standard deviation of the interaction in this term over rows (see ctrpipe.models.explain.strengths). It is exact
        for a linear activation; higher orders are left out.

        Args:
            covariances: Covariance of each part's embedding over rows, (embedding_dim, embedding_dim) each.
        """
        kernel = self.cin.kernel_of(0)
        weights = np.asarray(self.logit.kernel)[: self.cin.pooled_maps(0), 0]
        factors = kernel[:, :, : len(weights)] @ weights
        return inner_products(covariances, factors + factors.T)

    def feature_maps(self, inputs: Inputs) -> list[Tensor]:
        """Returns the feature maps of every layer, (batch_size, H_k, embedding_dim) each."""
        _, maps = self.cin(self.rows(inputs), return_maps=True)
        return list(maps)
