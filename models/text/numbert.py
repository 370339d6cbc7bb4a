"""Models that read features as numbers, written as tokens."""

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from ctrpipe.models.base.feature_map import FeatureMap
from ctrpipe.models.base.tensors import Inputs, Tensor
from ctrpipe.models.layers.number_tokens import NumberTokens, new_tokens
from ctrpipe.models.layers.tower import Tower
from ctrpipe.models.text.bert4ctr import attend, attention_to_text, uni_attention_layers
from ctrpipe.models.text.text_model import TextModel


class NumberTextModel(TextModel):
    """Base class of the models that read features as number tokens of the text's vocabulary.

    The docstring of NumBERT has an example.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text; `numbers` must name every numeric
            feature.
        embedding_dim: int. Width of the position's embedding. Defaults to 1.
        **options: Options of TextModel.

    Raises:
        ValueError: the data has no text or no feature, or `numbers` lacks a numeric feature.

    References:
        Wang et al., "BERT4CTR", 2023, section 3.2.1.
    """

    def __init__(self, feature_map: FeatureMap, *, embedding_dim: int = 1, **options: Any) -> None:
        super().__init__(feature_map, embedding_dim=embedding_dim, **options)
        if self.position is None:
            self.table = None  # no field is embedded: features are read as numbers
        self.numbers = NumberTokens(feature_map, name="numbers")

    @classmethod
    def extra_tokens(cls, feature_map: FeatureMap) -> int:
        assert feature_map.text is not None  # TextModel has checked it
        return new_tokens(feature_map.text)

    def number_tokens(self, inputs: Inputs) -> Tensor:
        """Returns the tokens of the features, int32 (batch_size, length); see NumberTokens."""
        return self.numbers({name: inputs[name] for name in ("ids", "numbers") if name in inputs})

    def number_rows(self, inputs: Inputs) -> Tensor:
        """Returns the embeddings of the features' tokens, (batch_size, length, width), or the input `number_rows`."""
        given = inputs.get("number_rows")
        return self.encoder.embed_tokens(self.number_tokens(inputs)) if given is None else given

    def token_parts(self, inputs: Inputs) -> dict[str, Tensor]:
        return {**super().token_parts(inputs), "number_rows": self.number_rows(inputs)}


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumBERT(NumberTextModel):
    """NumBERT: the encoder reads the features as numbers after the text.

    `logit = w · pooled([text ; 35 [EXP] 1 [SEP] ; ...]) + b + position term`.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text; `numbers` must name every numeric
            feature.
        **options: Options of NumberTextModel. The encoder needs positions for the text and for the features' tokens, 4
            per number.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> text = Text(length=4, vocabulary_size=30)
        >>> feature_map = FeatureMap.from_sizes(fields, text=text, numbers=("age",))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = NumBERT(feature_map, **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> inputs["numbers"] = keras.ops.array([[35, 1], [4, 0]])  # 35 and 4 years
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text or no feature, or `numbers` lacks a numeric feature.

    References:
        Wang et al., "BERT4CTR", 2023, section 3.2.1; Zhang et al., "Do Language Embeddings Capture Scales?", 2020.
    """

    shares_text = False

    def __init__(self, feature_map: FeatureMap, **options: Any) -> None:
        super().__init__(feature_map, **options)
        self.head = Tower((), self.tasks, name="head")

    def states(self, inputs: Inputs, training: bool | None = None) -> list[Tensor]:
        numbers = self.number_tokens(inputs)
        tokens = ops.concatenate([inputs["tokens"], numbers], axis=1)
        segments = ops.concatenate([inputs["segments"], ops.ones_like(numbers)], axis=1)
        rows = None
        if "token_rows" in inputs:
            rows = ops.concatenate([inputs["token_rows"], self.number_rows(inputs)], axis=1)
        states: list[Tensor] = self.encoder(tokens, segments, training=training, token_rows=rows)
        return states

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        pooled = self.pooled(self.states(inputs, training), training)
        return self.head(pooled) + self.position_logits(rows)


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumBERTUniAttention(NumberTextModel):
    """NumBERT with uni-attention: the numbers attend to the text instead of joining it.

    `logit = MLP([P u_L ; pooled text]) + position term`, with u_0 the embeddings of the numbers' tokens and
    `u_l = UniAttentionLayer(u_{l-1}, h_l)`. P projects every token to `token_dim` to keep the MLP's first layer small.

    Args:
        feature_map: FeatureMap. The description of the packed tensors, with a text; `numbers` must name every numeric
            feature.
        token_dim: int. Width of a token's projected output. Defaults to 8.
        token_ffn: int. Width of the feed-forward networks after the uni-attention. Defaults to 3072.
        attention_dim: int. Width d_a of the hidden layer of the attention scores. Defaults to 64.
        hidden_units: sequence of int. Widths of the MLP's hidden layers. Defaults to (256,).
        dropout: float or sequence of float. Dropout rate after each hidden layer. Defaults to 0.
        **options: Options of NumberTextModel.

    Example:
        >>> from ctrpipe.models.base.feature_map import Text
        >>> fields = [("age", "numeric", 100), ("slot", "categorical", 3, 1, "position")]
        >>> text = Text(length=4, vocabulary_size=30)
        >>> feature_map = FeatureMap.from_sizes(fields, text=text, numbers=("age",))
        >>> encoder = {"encoder_layers": 1, "encoder_width": 8, "encoder_heads": 2, "encoder_ffn": 16}
        >>> model = NumBERTUniAttention(feature_map, token_dim=6, token_ffn=5, attention_dim=3, **encoder)
        >>> tokens, segments = keras.ops.array([[2, 7, 9, 3], [2, 8, 3, 0]]), keras.ops.zeros((2, 4), "int32")
        >>> inputs = {"ids": keras.ops.array([[30, 104], [41, 105]]), "tokens": tokens, "segments": segments}
        >>> inputs["numbers"] = keras.ops.array([[35, 1], [4, 0]])  # 35 and 4 years
        >>> keras.ops.shape(model(inputs))  # logits (batch_size, tasks)
        (2, 1)

    Raises:
        ValueError: the data has no text or no feature, or `numbers` lacks a numeric feature.

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
        dropout: float | Sequence[float] = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(feature_map, **options)
        self.token_dim = token_dim
        self.uni_attention = uni_attention_layers(self.encoder, attention_dim, token_ffn)
        self.project = keras.layers.Dense(token_dim, name="project")
        self.tower = self.mlp(hidden_units, self.tasks, "relu", dropout, name="tower")

    def text_queries(self) -> list[str]:
        """Returns the column of each query of `text_attention`."""
        return list(self.numbers.owners)

    def text_attention(self, inputs: Inputs) -> list[Tensor]:
        """Returns each layer's attention of the numbers' tokens to the text, float32 (batch_size, queries, T)."""
        mask = self.encoder.mask(inputs["tokens"])
        return attention_to_text(self.uni_attention, self.number_rows(inputs), self.states(inputs), mask)

    def interact(self, rows: Tensor, inputs: Inputs, training: bool | None = None) -> Tensor:
        states = self.states(inputs, training)
        mask = self.encoder.mask(inputs["tokens"])
        tokens = attend(self.uni_attention, self.number_rows(inputs), states, mask, training)
        gathered = ops.reshape(self.project(tokens), (-1, self.numbers.length * self.token_dim))
        parts = [gathered, self.pooled_by_row(states, inputs, training)]
        return self.tower(ops.concatenate(parts, axis=1), training=training) + self.position_logits(rows)
