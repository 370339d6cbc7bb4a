"""Features written as numbers into the text."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from models.feature_map import FeatureMap
from models.layers.number_tokens import NumberTokens, new_tokens
from models.layers.tower import Tower
from models.tensors import Inputs, Tensor
from models.text.bert4ctr import attend, uni_attention_layers
from models.text.text_model import TextModel


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumBERT(TextModel):
    """The text, then every feature as `35 [EXP] 1 [SEP]`, through the encoder; logit = w · pooled + b.

    Args:
        feature_map: The description of the packed tensors, with a text; every feature is a field of one slot.
        embedding_dim: Width of the position's vector.
        **options: See TextModel; the encoder needs positions for the text and 4 tokens per feature.

    References:
        Wang et al., "BERT4CTR", 2023, section 3.2.1; Zhang et al., "Do Language Embeddings Capture Scales?", 2020.
    """

    counts_padding = True  # the numbers' positions follow it
    shares_text = False

    def __init__(self, feature_map: FeatureMap, *, embedding_dim: int = 1, **options: Any) -> None:
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        if self.position is None:
            self.table = None  # features are read as numbers
        self.numbers = NumberTokens(feature_map, name="numbers")
        self.head = Tower((), self.tasks, name="head")

    @classmethod
    def extra_tokens(cls, feature_map: FeatureMap) -> int:
        return new_tokens(feature_map.text)

    def states(self, inputs, training=None):
        numbers = self.numbers(feature_ids(inputs["ids"], self.feature_map))
        tokens = ops.concatenate([inputs["tokens"], numbers], axis=1)
        segments = ops.concatenate([inputs["segments"], ops.ones_like(numbers)], axis=1)
        return self.encoder(tokens, segments, training=training)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        pooled = self.pooled(self.states(inputs, training), training)
        return self.head(pooled) + self.position_logits(rows)


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumBERTUniAttention(TextModel):
    """The numbers' tokens attend to the text instead of joining it: uni-attention before any reduction.

    The outputs of all tokens are one hidden layer beside the pooled text; so that it stays of a useful size, every
    output is first projected to `token_dim` by the same weights.

    Args:
        feature_map: The description of the packed tensors, with a text; every feature is a field of one slot.
        token_dim: Width to which a token's output is projected.
        token_ffn: Width of the feed-forward networks behind the uni-attention.
        attention_dim: d_a.
        hidden_units: Widths of the MLP's hidden layers.
        dropout: Rate after each hidden layer.
        embedding_dim: Width of the position's vector.
        **options: See TextModel.

    References:
        Wang et al., "BERT4CTR", 2023, section 3.2.2.
    """

    def __init__(
        self,
        feature_map: FeatureMap,
        *,
        token_dim: int = 8,
        token_ffn: int = 3072,
        attention_dim: int = 64,
        hidden_units: Sequence[int] = (256,),
        dropout: float = 0.0,
        embedding_dim: int = 1,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        if self.position is None:
            self.table = None  # features are read as numbers
        self.token_dim = token_dim
        self.numbers = NumberTokens(feature_map, name="numbers")
        self.uni_attention = uni_attention_layers(self.encoder, attention_dim, token_ffn)
        self.project = keras.layers.Dense(token_dim, name="project")
        self.tower = Tower(hidden_units, self.tasks, "relu", dropout, name="tower")

    @classmethod
    def extra_tokens(cls, feature_map: FeatureMap) -> int:
        return new_tokens(feature_map.text)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        numbers = self.numbers(feature_ids(inputs["ids"], self.feature_map))
        states = self.states(inputs, training)
        mask = self.encoder.mask(inputs["tokens"])
        tokens = attend(self.uni_attention, self.encoder.embed_words(numbers), states, mask, training)
        gathered = ops.reshape(self.project(tokens), (-1, self.numbers.length * self.token_dim))
        parts = [gathered, self.pooled_of_rows(states, inputs, training)]
        return self.tower(ops.concatenate(parts, axis=1), training=training) + self.position_logits(rows)


def feature_ids(ids, feature_map: FeatureMap):
    """The ids of the fields that are features, (batch_size, features)."""
    return ops.stack([ids[:, i] for i, field in enumerate(feature_map.fields) if field.role == "feature"], axis=1)
