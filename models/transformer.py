"""The Transformer over features."""

import keras

from models.token_transformer import TokenTransformer


@keras.saving.register_keras_serializable(package="ctrpipe")
class Transformer(TokenTransformer):
    """Encoder layers whose projections all tokens share; Hiformer's first baseline.

    Args:
        feature_map: The description of the packed tensors.
        **options: See TokenTransformer and CTRModel.

    References:
        Gui et al., "Hiformer", 2023, section 4.1.3; Vaswani et al., "Attention Is All You Need", 2017.
    """

    projection = "shared"
