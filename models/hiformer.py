"""Hiformer."""

from typing import Any

import keras
import numpy as np
from keras import ops

from models.feature_map import FeatureMap
from models.token_transformer import TokenTransformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class Hiformer(TokenTransformer):
    """Composite projections of all tokens together, of low rank (equations 5 to 7).

    Args:
        feature_map: The description of the packed tensors.
        qk_rank: r_k, of the query and key projections (paper: 128), or None for full matrices.
        v_rank: r_v, of the value projection (paper: 1024), or None for full matrices.
        **options: See TokenTransformer and CTRModel.

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
        """The singular values of V̂ in every layer, (heads, values) each, in decreasing order (the paper's Figure 3)."""
        projections = [ops.convert_to_numpy(layer.value_projections()) for layer in self.encoder]
        return [np.linalg.svd(projection, compute_uv=False) for projection in projections]
