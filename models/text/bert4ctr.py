"""Models whose features attend to the text in every layer of the encoder."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.checks import require_positive
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.text_encoder import TextEncoder
from ctrpipe.models.layers.uni_attention import UniAttentionLayer
from ctrpipe.models.text.text_model import TextModel, feature_rows


@keras.saving.register_keras_serializable(package="ctrpipe")
class BERT4CTR(TextModel):
    """BERT4CTR: the reduced features attend to the text's states in every layer of the encoder.

    `logit = MLP([u_L ; pooled text]) + position term` with `u_0 = relu(W concat(features) + b)` and
    `u_l = UniAttentionLayer(u_{l-1}, h_l)`. The feature tokens have no position. The text never attends to the
    features: its states do not depend on them. Training has two steps: first a text model and a model of the features,
    then this model, which starts from their weights.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        token_dim: int. Width K of a feature token. Defaults to 512, as in the paper.
        feature_tokens: int. Number of tokens that all features are reduced to. Defaults to 1, as in the paper.
        token_ffn: int. Width of the feed-forward networks after the uni-attention. Defaults to 2048.
        attention_dim: int. Width d_a of the hidden layer of the attention scores. Defaults to 64, as in the paper.
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (256,).
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        **options: Options of TextModel.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> feature_map = FeatureMap.from_sizes(fields, text=Text(length=4, vocabulary_size=30))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = BERT4CTR(feature_map, token_dim=6, token_ffn=5, attention_dim=3, **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text or no feature, or `feature_tokens` is not positive.

    References:
        Wang et al., "BERT4CTR: An Efficient Framework to Combine Pre-trained Language Model with Non-textual Features
        for CTR Prediction", 2023, section 3.2.
    """

    pretraining: tuple[str, ...] = ("text_only", "features_only")

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        token_dim: int = 512,
        feature_tokens: int = 1,
        token_ffn: int = 2048,
        attention_dim: int = 64,
        hidden_units: Sequence[int] = (256,),
        dropout: float | Sequence[float] = 0.0,
        **options: Any,
    ) -> None:
        require_positive(feature_tokens=feature_tokens)
        super().__init__(feature_map, **options)
        self.token_dim = token_dim
        self.feature_tokens = feature_tokens
        self.reduce = keras.layers.Dense(feature_tokens * token_dim, activation="relu", name="reduce")
        self.uni_attention = uni_attention_layers(self.encoder, attention_dim, token_ffn)
        self.tower = self.mlp(hidden_units, self.tasks, "relu", dropout, name="tower")

    def reduced(self, rows: Tensor, inputs: Inputs) -> Tensor:
        """Returns the feature tokens before the uni-attention, (batch_size, feature_tokens, token_dim)."""
        features = self.reduce(feature_rows(rows, inputs, self.feature_map))
        return ops.reshape(features, (-1, self.feature_tokens, self.token_dim))

    def text_queries(self) -> list[str]:
        """Returns the name of each query of `text_attention`."""
        return ["features"] if self.feature_tokens == 1 else [f"features {n + 1}" for n in range(self.feature_tokens)]

    def text_attention(self, inputs: Inputs) -> list[Tensor]:
        """Returns each layer's attention of the feature tokens to the text, float32 (batch_size, queries, T)."""
        mask = self.encoder.mask(inputs["tokens"])
        return attention_to_text(self.uni_attention, self.reduced(self.rows(inputs), inputs), self.states(inputs), mask)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        tokens = self.reduced(rows, inputs)
        states = self.states(inputs, training)
        tokens = attend(self.uni_attention, tokens, states, self.encoder.mask(inputs["tokens"]), training)
        attended = ops.reshape(tokens, (-1, self.feature_tokens * self.token_dim))
        parts = [attended, self.pooled_by_row(states, inputs, training)]
        return self.tower(ops.concatenate(parts, axis=1), training=training) + self.position_logits(rows)


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumBERTUniAttentionReduced(BERT4CTR):
    """BERT4CTR without the two-step training.

    The equation is the same as for BERT4CTR. The text encoder starts from the language model's weights, the rest
    from random weights.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        **options: Options of BERT4CTR.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> feature_map = FeatureMap.from_sizes(fields, text=Text(length=4, vocabulary_size=30))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = NumBERTUniAttentionReduced(feature_map, token_dim=6, token_ffn=5, attention_dim=3, **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    References:
        Wang et al., "BERT4CTR", 2023, sections 4.2.3 and 4.2.4.
    """

    pretraining = ()


def uni_attention_layers(encoder: TextEncoder, attention_dim: int, ffn_dim: int) -> list[UniAttentionLayer]:
    """Returns one layer per encoder layer, with the encoder's activation, epsilon and dropout."""
    return [
        UniAttentionLayer(
            attention_dim, ffn_dim, encoder.activation, encoder.epsilon, encoder.dropout, name=f"uni_attention_{index}"
        )
        for index in range(encoder.layers)
    ]


def attention_to_text(
    layers: Sequence[UniAttentionLayer], tokens: Tensor, states: Sequence[Tensor], mask: Tensor
) -> list[Tensor]:
    """Returns each layer's attention, float32 (batch_size, tokens, T). See `attend` for the arguments."""
    maps = []
    for layer, layer_states in zip(layers, states[1:], strict=True):
        maps.append(layer.attention(tokens, layer_states, mask, return_attention=True)[1])
        tokens = layer(tokens, layer_states, mask)
    return maps


def attend(
    layers: Sequence[UniAttentionLayer],
    tokens: Tensor,
    states: Sequence[Tensor],
    mask: Tensor,
    training: bool | None = None,
) -> Tensor:
    """Returns the feature tokens after all layers, (batch_size, tokens, width).

    If all rows share one text, (1, T, width), the tokens of all rows become the queries of one sequence. This avoids
    copying the text's states.

    Args:
        layers: One layer per encoder layer.
        tokens: (batch_size, tokens, width).
        states: The text's states, embeddings first.
        mask: bool (batch_size, T), False for padding.
        training: Whether dropout is on.
    """
    _, count, width = tokens.shape
    if mask.shape[0] == 1:
        tokens = ops.reshape(tokens, (1, -1, width))
    for layer, layer_states in zip(layers, states[1:], strict=True):
        tokens = layer(tokens, layer_states, mask, training=training)
    return ops.reshape(tokens, (-1, count, width))
