"""Hiformer."""

from typing import Any

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.token_transformer import TokenTransformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class Hiformer(TokenTransformer):
    """Hiformer: a Transformer with low-rank projections of all features together.

    `[Q_1 ... Q_L] = concat(e_1 ... e_L) L Rᵀ`; K and V have the same form (equations 5 to 7).

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        qk_rank: int. Rank r_k of the query and key projections; None for full matrices. Defaults to 128, as in the
            paper.
        v_rank: int. Rank r_v of the value projection; None for full matrices. Defaults to 1024, as in the paper.
        **options: Options of TokenTransformer and CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = Hiformer(feature_map, qk_rank=3, v_rank=5, embedding_dim=4, ffn_dim=6, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    References:
        Gui et al., "Hiformer: Heterogeneous Feature Interactions Learning with Transformers for Recommender Systems",
        2023, sections 3.4 and 3.5.
    """

    projection = "composite"

    def __init__(
        self, feature_map: FeatureMap, *, qk_rank: int | None = 128, v_rank: int | None = 1024, **options: Any
    ) -> None:
        self._ranks = {"qk_rank": qk_rank, "v_rank": v_rank}
        super().__init__(feature_map, **options)

    def ranks(self) -> dict[str, int | None]:
        return dict(self._ranks)

    def singular_values(self) -> list[np.ndarray]:
        """Returns the singular values of V̂ in every layer, (heads, values) each, in decreasing order (Figure 3)."""
        projections = [ops.convert_to_numpy(layer.value_projections()) for layer in self.encoder]
        return [np.linalg.svd(projection, compute_uv=False) for projection in projections]
