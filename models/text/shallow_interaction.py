"""Models that combine text and features in the last layer."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.text_encoder import FeedForward
from ctrpipe.models.text.text_model import TextModel, feature_rows


@keras.saving.register_keras_serializable(package="ctrpipe")
class ShallowInteraction1(TextModel):
    """Text and features combined in the last layer, with one layer on the features.

    `logit = MLP([relu(W concat(features) + b) ; pooled text]) + position term`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        token_dim: int. Width K of the feature vector. Defaults to 512, as in the paper.
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (256,).
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        **options: Options of TextModel.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> feature_map = FeatureMap.from_sizes(fields, text=Text(length=4, vocabulary_size=30))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = ShallowInteraction1(feature_map, token_dim=6, **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text or no feature.

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
        dropout: float | Sequence[float] = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, **options)
        self.reduce = keras.layers.Dense(token_dim, activation="relu", name="reduce")
        self.tower = self.mlp(hidden_units, self.tasks, "relu", dropout, name="tower")

    def transform_features(self, features: Tensor, training: bool | None = None) -> Tensor:
        """Returns the feature vector to concatenate with the pooled text, (batch_size, token_dim)."""
        return features

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        features = self.transform_features(self.reduce(feature_rows(rows, inputs, self.feature_map)), training)
        pooled = self.pooled_by_row(self.states(inputs, training), inputs, training)
        logits = self.tower(ops.concatenate([features, pooled], axis=1), training=training)
        return logits + self.position_logits(rows)


@keras.saving.register_keras_serializable(package="ctrpipe")
class ShallowInteractionN(ShallowInteraction1):
    """Text and features combined in the last layer, with one layer on the features per encoder layer.

    The equation is the same as for ShallowInteraction1, with one FeedForward on the feature vector per encoder layer.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        token_ffn: int. Width of the feed-forward networks on the features. Defaults to 2048.
        **options: Options of ShallowInteraction1.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> feature_map = FeatureMap.from_sizes(fields, text=Text(length=4, vocabulary_size=30))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = ShallowInteractionN(feature_map, token_dim=6, token_ffn=5, **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text or no feature.

    References:
        Wang et al., "BERT4CTR", 2023, section 4.1.3.
    """

    def __init__(self, feature_map: FeatureMap, *, token_ffn: int = 2048, **options: Any) -> None:
        super().__init__(feature_map, **options)
        encoder = self.encoder
        self.feature_layers = [
            FeedForward(token_ffn, encoder.activation, encoder.epsilon, encoder.dropout, name=f"features_{index}")
            for index in range(encoder.layers)
        ]

    def transform_features(self, features: Tensor, training: bool | None = None) -> Tensor:
        for layer in self.feature_layers:
            features = layer(features, training=training)
        return features
