"""Transformer over features."""

import keras

from ctrpipe.models.token_transformer import TokenTransformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class Transformer(TokenTransformer):
    """Transformer over features, with projections that all features share: Hiformer's first baseline.

    `Q_i, K_i, V_i = e_i W^Q, e_i W^K, e_i W^V`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors.
        **options: Options of TokenTransformer and CTRModel.

    Example:
        >>> from ctrpipe.models import FeatureMap
        >>> feature_map = FeatureMap.from_sizes([("site", "categorical", 100), ("ad", "categorical", 50)])
        >>> model = Transformer(feature_map, embedding_dim=4, heads=2, key_dim=3, value_dim=2, hidden_units=(8,))
        >>> inputs = {"ids": keras.ops.array([[3, 105], [7, 110]])}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    References:
        Gui et al., "Hiformer", 2023, section 4.1.3; Vaswani et al., "Attention Is All You Need", 2017.
    """

    projection = "shared"
