"""Heterogeneous attention."""

import keras

from ctrpipe.models.token_transformer import TokenTransformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class HeteroAtt(TokenTransformer):
    """Heterogeneous attention: a Transformer in which every feature has its own projections.

    `Q_i, K_i, V_i = e_i W_i^Q, e_i W_i^K, e_i W_i^V`, with one feed-forward network per feature (equations 1 to 4).

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        **options: Options of TokenTransformer and CTRModel.

    Example:
        >>> from ctrpipe.models import FeatureMap
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = HeteroAtt(feature_map, embedding_dim=4, heads=2, key_dim=3, value_dim=2, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    References:
        Gui et al., "Hiformer", 2023, section 3.3.
    """

    projection = "feature"
