"""Features that attend to the text in every layer of the encoder."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.feature_map import FeatureMap
from models.layers.tower import Tower
from models.layers.uni_attention import UniAttentionLayer
from models.tensors import Inputs, Tensor
from models.text.text_model import TextModel, feature_rows


@keras.saving.register_keras_serializable(package="ctrpipe")
class BERT4CTR(TextModel):
    """Uni-attention of the reduced features to the text's states of every layer; logit = MLP([features; pooled text]).

    The features' tokens have no position, and the text never attends to them, so that its states are the same whatever
    the features are. Training has two steps: text and features each alone, then everything from their weights.

    Args:
        feature_map: The description of the packed tensors, with a text.
        token_dim: K, the width of a non-textual token (paper: 512).
        feature_tokens: How many non-textual tokens all features are reduced to (paper: 1).
        token_ffn: Width of the feed-forward networks behind the uni-attention.
        attention_dim: d_a (paper: 64).
        hidden_units: Widths of the MLP's hidden layers.
        dropout: Rate after each hidden layer.
        **options: See TextModel.

    References:
        Wang et al., "BERT4CTR: An Efficient Framework to Combine Pre-trained Language Model with Non-textual Features
        for CTR Prediction", 2023, section 3.2.
    """

    pretraining = ("text_only", "features_only")

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        token_dim: int = 512,
        feature_tokens: int = 1,
        token_ffn: int = 2048,
        attention_dim: int = 64,
        hidden_units: Sequence[int] = (256,),
        dropout: float = 0.0,
        **options: Any,
    ) -> None:
        if feature_tokens < 1:
            raise ValueError(f"`feature_tokens` should be positive. Received: feature_tokens={feature_tokens}")
        super().__init__(feature_map, **options)
        self.token_dim = token_dim
        self.feature_tokens = feature_tokens
        self.reduce = keras.layers.Dense(feature_tokens * token_dim, activation="relu", name="reduce")
        self.uni_attention = uni_attention_layers(self.encoder, attention_dim, token_ffn)
        self.tower = Tower(hidden_units, self.tasks, "relu", dropout, name="tower")

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        features = self.reduce(feature_rows(rows, inputs, self.feature_map))
        tokens = ops.reshape(features, (-1, self.feature_tokens, self.token_dim))
        states = self.states(inputs, training)
        tokens = attend(self.uni_attention, tokens, states, self.encoder.mask(inputs["tokens"]), training)
        attended = ops.reshape(tokens, (-1, self.feature_tokens * self.token_dim))
        parts = [attended, self.pooled_of_rows(states, inputs, training)]
        return self.tower(ops.concatenate(parts, axis=1), training=training) + self.position_logits(rows)


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumBERTUniAttentionReduced(BERT4CTR):
    """BERT4CTR without the two-step training: from the language model as it is, and random weights.

    Args:
        feature_map: The description of the packed tensors, with a text.
        **options: See BERT4CTR.

    References:
        Wang et al., "BERT4CTR", 2023, sections 4.2.3 and 4.2.4.
    """

    pretraining = ()


def uni_attention_layers(encoder, attention_dim: int, ffn_dim: int) -> list[UniAttentionLayer]:
    """One for each layer of the encoder, with its activation and normalisation."""
    return [
        UniAttentionLayer(
            attention_dim, ffn_dim, encoder.activation, encoder.epsilon, encoder.dropout, name=f"uni_attention_{index}"
        )
        for index in range(encoder.layers)
    ]


def attend(layers, tokens, states, mask, training=None):
    """Tokens of features (batch_size, tokens, width) through all layers, each beside the text's states of its layer.

    Of one text that all rows share, (1, T, width), the tokens of all rows are queries side by side: no state is copied.
    """
    _, count, width = tokens.shape
    if mask.shape[0] == 1:
        tokens = ops.reshape(tokens, (1, -1, width))
    for layer, layer_states in zip(layers, states[1:], strict=True):
        tokens = layer(tokens, layer_states, mask, training=training)
    return ops.reshape(tokens, (-1, count, width))
