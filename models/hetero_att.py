"""Heterogeneous attention."""

import keras

from models.token_transformer import TokenTransformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class HeteroAtt(TokenTransformer):
    """Every feature has its own projections and feed-forward network (equations 1 to 4).

    Args:
        feature_map: The description of the packed tensors.
        **options: See TokenTransformer and CTRModel.

    References:
        Gui et al., "Hiformer", 2023, section 3.3.
    """

    projection = "feature"
