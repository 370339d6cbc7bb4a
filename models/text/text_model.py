"""Base class of the models with a text encoder."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.ctr_model import CTRModel, batch_size
from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.text_encoder import TextEncoder
from ctrpipe.models.layers.uni_attention import UniAttentionLayer


class TextModel(CTRModel):
    """Base class of models with a text encoder (BERT or RoBERTa) and an embedding table for the features.

    `logit = f(states of the text, features) + position term`. The position at which an ad was shown (a field with the
    role "position") is not a feature. It has its own term in the logit, which lets serving set it to a fixed value. The
    docstring of TextOnly has an example.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text.
        encoder_layers: int. Number of encoder layers. The defaults of the `encoder_` options are those of BERT-Base; a
            checkpoint has its own values. Defaults to 12.
        encoder_width: int. Width of the encoder's states. Defaults to 768.
        encoder_heads: int. Number of attention heads; must divide the width. Defaults to 12.
        encoder_ffn: int. Width of the feed-forward networks' hidden layer. Defaults to 3072.
        encoder_positions: int. Number of position embeddings: the maximum length of a text in tokens. Defaults to 512.
        encoder_segments: int. Number of segment embeddings. Defaults to 2.
        encoder_first_position: int. Position of a text's first token; RoBERTa's is 2. Defaults to 0.
        encoder_activation: str. HuggingFace's name: "gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "leaky_relu",
            "silu" or "swish". Defaults to "gelu".
        encoder_epsilon: float. Epsilon of the layer normalisations. Defaults to 1e-12.
        encoder_dropout: float. Dropout rate in the encoder. Defaults to 0.1.
        embedding_dim: int. Width N of a feature's embedding. Defaults to 32, as in the paper.
        **options: Options of CTRModel.

    Raises:
        ValueError: the data has no text.

    References:
        Wang et al., "BERT4CTR", 2023, section 3.
    """

    needs_text = True
    shares_text = True
    # The first layer on the features, a Dense layer whose weights models share in pretraining; None if there is none.
    reduce: Any = None
    # One layer per encoder layer; empty for a model whose features do not attend to the text.
    uni_attention: Sequence[UniAttentionLayer] = ()

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        encoder_layers: int = 12,
        encoder_width: int = 768,
        encoder_heads: int = 12,
        encoder_ffn: int = 3072,
        encoder_positions: int = 512,
        encoder_segments: int = 2,
        encoder_first_position: int = 0,
        encoder_activation: str = "gelu",
        encoder_epsilon: float = 1e-12,
        encoder_dropout: float = 0.1,
        embedding_dim: int = 32,
        **options: Any,
    ) -> None:
        if feature_map.text is None:
            raise ValueError(f"{type(self).__name__} needs a text; the data has none")
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        self.encoder = TextEncoder(
            vocabulary_size=feature_map.text.vocabulary_size + self.extra_tokens(feature_map),
            layers=encoder_layers,
            width=encoder_width,
            heads=encoder_heads,
            ffn_dim=encoder_ffn,
            positions=encoder_positions,
            segments=encoder_segments,
            padding_id=feature_map.text.padding_id,
            first_position=encoder_first_position,
            activation=encoder_activation,
            epsilon=encoder_epsilon,
            dropout=encoder_dropout,
            name="encoder",
        )
        self.pooler = keras.layers.Dense(encoder_width, activation="tanh", name="pooler")
        self.pooled_drop = keras.layers.Dropout(encoder_dropout)
        self.position = position_term(feature_map, self.tasks)

    @classmethod
    def extra_tokens(cls, feature_map: FeatureMap) -> int:
        """Returns the number of token-table rows after the text's vocabulary."""
        return 0

    def states(self, inputs: Inputs, training: bool | None = None) -> list[Tensor]:
        """Returns the text's states, embeddings first: layers + 1 tensors (batch_size, T, width).

        If the inputs have `token_rows`, these embeddings replace the lookup in the token table.
        """
        states: list[Tensor] = self.encoder(
            inputs["tokens"], inputs.get("segments"), training=training, token_rows=inputs.get("token_rows")
        )
        return states

    def token_parts(self, inputs: Inputs) -> dict[str, Tensor]:
        return {"token_rows": self.encoder.embed_tokens(inputs["tokens"])}

    def pooled(self, states: Sequence[Tensor], training: bool | None = None) -> Tensor:
        """Returns tanh(W h_[CLS] + b) of the last layer, (batch_size, width)."""
        return self.pooled_drop(self.pooler(states[-1][:, 0]), training=training)

    def pooled_by_row(self, states: Sequence[Tensor], inputs: Inputs, training: bool | None = None) -> Tensor:
        """Returns the pooled text of every row, (batch_size, width), even if all rows share one text."""
        return repeat_for_rows(self.pooled(states, training), inputs)

    def position_logits(self, rows: Tensor) -> Tensor:
        """Returns the position term of the logits, (batch_size, tasks); 0 if no field is a position."""
        return 0.0 if self.position is None else self.position(position_rows(rows, self.feature_map))

    def weights_by_row(self) -> list[tuple[keras.Variable, str]]:
        return [*super().weights_by_row(), (self.encoder.token_table, "tokens")]

    def encoder_weights(self) -> list[keras.Variable]:
        return [*self.encoder.trainable_variables, *self.pooler.trainable_variables]

    def shared_layers(self) -> dict[str, keras.layers.Layer | None]:
        return {"encoder": self.encoder, "pooler": self.pooler, "embedding": self.table, "reduce": self.reduce}

    def fold(self) -> None:
        for layer in self.uni_attention:
            layer.attention.fold()


def repeat_for_rows(values: Tensor, inputs: Inputs) -> Tensor:
    """Returns values (batch_size, width); repeats the row of (1, width), for a text that all rows share."""
    if values.shape[0] != 1:
        return values
    return ops.broadcast_to(values, (batch_size(inputs), values.shape[1]))


def position_term(feature_map: FeatureMap, tasks: int) -> keras.layers.Layer | None:
    """Returns the layer of the position term, which is initially 0; None if no field is a position."""
    if all(field.role != "position" for field in feature_map.fields):
        return None
    return keras.layers.Dense(tasks, use_bias=False, kernel_initializer="zeros", name="position")


def position_rows(rows: Tensor, feature_map: FeatureMap) -> Tensor:
    """Returns the concatenated embeddings of the positions, (batch_size, positions * embedding_dim)."""
    return _concatenate([rows[:, i] for i, field in enumerate(feature_map.fields) if field.role == "position"])


def feature_rows(rows: Tensor, inputs: Inputs, feature_map: FeatureMap) -> Tensor:
    """Returns the feature embeddings (without positions) and dense features, concatenated, (batch_size, width).

    Raises:
        ValueError: there is neither a feature nor a dense feature.
    """
    parts = [rows[:, i] for i, field in enumerate(feature_map.fields) if field.role != "position"]
    if "dense" in inputs:
        parts.append(ops.cast(inputs["dense"], parts[0].dtype if parts else "float32"))
    if not parts:
        raise ValueError("There is no feature besides the text and the position")
    return _concatenate(parts)


def _concatenate(parts: list[Tensor]) -> Tensor:
    return ops.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
