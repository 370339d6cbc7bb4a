"""Text and features that meet in the last layer."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.feature_map import FeatureMap
from models.layers.text_encoder import FeedForward
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor
from models.text.text_model import TextModel, feature_rows


@keras.saving.register_keras_serializable(package="ctrpipe")
class ShallowInteraction1(TextModel):
    """logit = MLP([features; pooled text]), the features reduced to one vector.

    Args:
        feature_map: The description of the packed tensors, with a text.
        token_dim: K, the width of the features' vector (paper: 512).
        hidden_units: Widths of the MLP's hidden layers.
        dropout: Rate after each hidden layer.
        **options: See TextModel.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    pretraining = ("text_only", "features_only")

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        token_dim: int = 512,
        hidden_units: Sequence[int] = (256,),
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, **options)
        self.reduce = keras.layers.Dense(token_dim, activation="relu", name="reduce")
        self.tower = Tower(hidden_units, self.tasks, "relu", dropout, name="tower")

    def deepen(self, features, training=None):
        """What becomes of the features' vector before it meets the text."""
        return features

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        features = self.deepen(self.reduce(feature_rows(rows, inputs, self.feature_map)), training)
        pooled = self.pooled_of_rows(self.states(inputs, training), inputs, training)
        logits = self.tower(ops.concatenate([features, pooled], axis=1), training=training)
        return logits + self.position_logits(rows)


@keras.saving.register_keras_serializable(package="ctrpipe")
class ShallowInteractionN(ShallowInteraction1):
    """As shallow_interaction_1, with as many feed-forward layers on the features as the encoder has layers.

    Args:
        feature_map: The description of the packed tensors, with a text.
        token_ffn: Width of the feed-forward networks on the features.
        **options: See ShallowInteraction1.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    def __init__(self, feature_map: FeatureMap, *, token_ffn: int = 2048, **options: Any) -> None:
        super().__init__(feature_map, **options)
        encoder = self.encoder
        self.layers_of_features = [
            FeedForward(token_ffn, encoder.activation, encoder.epsilon, encoder.dropout, name=f"features_{index}")
            for index in range(encoder.layers)
        ]

    def deepen(self, features, training=None):
        for layer in self.layers_of_features:
            features = layer(features, training=training)
        return features
