"""Wide & Deep."""

from typing import Any

import keras

from models.feature_map import FeatureMap
from models.mlp import MLP


@keras.saving.register_keras_serializable(package="ctrpipe")
class WideDeep(MLP):
    """logit = linear part + MLP(concat(embeddings, dense)), trained together.

    The wide part has the raw features; crossed columns are features of the log, not of the model.

    Args:
        feature_map: The description of the packed tensors.
        use_linear: The wide part.
        **options: See MLP and CTRModel.

    References:
        Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016, equation 3.
    """

    def __init__(self, feature_map: FeatureMap, *, use_linear: bool = True, **options: Any) -> None:
        super().__init__(feature_map, use_linear=use_linear, **options)
