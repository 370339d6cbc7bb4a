"""Wide & Deep."""

from typing import Any

import keras

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.mlp import MLP


@keras.saving.register_keras_serializable(package="ctrpipe")
class WideDeep(MLP):
    """Wide & Deep: a linear part and an MLP, trained together.

    `logit = linear part + MLP(concat(E, dense))`. The linear part has no crossed columns unless the log has
    them.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        use_linear: bool. Whether there is a wide part. Defaults to True.
        **options: Options of MLP and CTRModel.

    Example:
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = WideDeep(feature_map, embedding_dim=4, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    References:
        Cheng et al., "Wide & Deep Learning for Recommender Systems", 2016, equation 3.
    """

    def __init__(self, feature_map: FeatureMap, *, use_linear: bool = True, **options: Any) -> None:
        super().__init__(feature_map, use_linear=use_linear, **options)
