"""Writes features as number tokens, which NumBERT reads with the text."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops

from ctrpipe.models.base.feature_map import (
    MAX_EXPONENT,
    NUMBER_TOKENS,
    PADDING_ID,
    RESERVED_IDS,
    FeatureMap,
    Field,
    Text,
)
from ctrpipe.models.base.tensors import Inputs, Tensor

_MARKS = 2  # [EXP] after a non-negative significand, and [EXP] after a negative one
_GROUP = 1000  # a token holds three digits
_MOST_DIGITS = 10  # of an int32


def new_tokens(text: Text) -> int:
    """Returns the number of tokens to add to the vocabulary.

    They are [EXP], [EXP] after a negative significand, the exponents -1 to -38, and the numbers 0 to 999 that the
    vocabulary lacks.
    """
    return _MARKS + MAX_EXPONENT + NUMBER_TOKENS - sum(token != -1 for token in text.number_ids)


def _number_tokens(text: Text) -> np.ndarray:
    """Returns the tokens of the numbers 0 to 999, int32 [1000]."""
    tokens = np.full(NUMBER_TOKENS, -1, np.int32)
    tokens[: len(text.number_ids)] = text.number_ids
    lacking = tokens == -1
    tokens[lacking] = text.vocabulary_size + _MARKS + MAX_EXPONENT + np.arange(lacking.sum())
    return tokens


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumberTokens(keras.layers.Layer):
    """Writes each feature as the tokens `significand [EXP] exponent [SEP]`.

    A number has three significant digits: 35 is "35 [EXP] 1" and 0.01236 is "124 [EXP] -2". A different [EXP] follows a
    negative significand. A missing number is "[UNK] [EXP] 0".

    Any other feature is written as the ordinal of its id, counted from 1, in the vocabulary or in the hash buckets. The
    ordinal has all its digits, three per token. A field of 1,234 values needs one more token than a number; its last
    value is "1 234 [EXP] 3". An unknown value is "0 [EXP] 0" and a missing value "[UNK] [EXP] 0". Each part of a time
    is its own number, counted from 0. A field of several slots has one [SEP], after its last slot. Tokens that an
    ordinal or a slot does not need are padding. Positions are not features.

    Args:
        feature_map: FeatureMap. The features and the text. Its `numbers` must name all fields of kind "numeric" and all
            dense features. New tokens follow the vocabulary (see `new_tokens`).

    Example:
        >>> text = Text(length=8, vocabulary_size=130, number_ids=tuple(range(30, 130)))
        >>> fields = [("price", "numeric", 100), ("shop", "categorical", 2000)]
        >>> layer = NumberTokens(FeatureMap.from_sizes(fields, text=text, numbers=("price",)))
        >>> inputs = {"ids": keras.ops.array([[7, 103 + 1 + 35]]), "numbers": keras.ops.array([[12, 3]])}
        >>> print(layer(inputs).numpy())  # 12 [EXP] 3 [SEP], and the shop's ordinal 35: [PAD] 35 [EXP] 1 [SEP]
        [[ 42 130  33   3   0  65 130  31   3]]

    Raises:
        ValueError: there is no text or no feature, or `numbers` lacks a numeric feature.

    References:
        Wang et al., "BERT4CTR", 2023, section 3.2.1 and appendix A.1; Zhang et al., "Do Language Embeddings Capture
        Scales?", 2020.
    """

    def __init__(self, feature_map: FeatureMap, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        features = [field for field in feature_map.fields if field.role != "position"]
        numeric = [field.name for field in features if field.kind == "numeric"] + list(feature_map.dense)
        if not features and not numeric:
            raise ValueError("There is no feature to write as a number")
        if weighted := list(dict.fromkeys(feature_map.weighted_slots)):
            raise ValueError(f"Weights of values cannot be written; take another model. Received: {weighted}")
        if vectors := [name for name, width in feature_map.widths.items() if width > 1]:
            raise ValueError(f"A vector cannot be written as a number; take another model. Received: {vectors}")
        if lacking := sorted(set(numeric) - set(feature_map.numbers)):
            raise ValueError(f"Features are read as the log's numbers; set `raw_numbers: true`. Received: {lacking}")
        text = feature_map.text
        if text is None:
            raise ValueError("There is no text to write numbers into")
        self.feature_map = feature_map
        self.exponent_mark, self.padding = text.vocabulary_size, text.padding_id
        self.numbers = _number_tokens(text)
        negative = text.vocabulary_size + _MARKS + np.arange(MAX_EXPONENT)[::-1]
        self.exponents = np.concatenate([negative, self.numbers]).astype(np.int32)
        self.unknown = text.unknown_id
        self.significands = np.append(self.numbers, text.unknown_id).astype(np.int32)
        self.separator = text.separator_id
        self._lay_out(features)

    def _lay_out(self, features: list[Field]) -> None:
        """Sets which ids are written, and the order of the tokens of all features in a row."""
        first, self.groups = 0, 1
        slots: list[
            tuple[int, int, bool]
        ] = []  # per written id: its column in `ids`, its field's offset, whether it is a time
        written: list[tuple[Field, list[int], int]] = []  # a field, its indices in `slots`, its number of digit groups
        for field in self.feature_map.fields:
            if field.role != "position" and field.kind != "numeric":
                groups = -(-len(str(field.size - RESERVED_IDS)) // 3)
                written.append((field, list(range(len(slots), len(slots) + field.slots)), groups))
                slots += [(first + slot, field.offset, field.kind == "time") for slot in range(field.slots)]
                self.groups = max(self.groups, groups)
            first += field.slots
        self.slots, self.offsets = (np.array([slot[i] for slot in slots], np.int32) for i in (0, 1))
        self.is_time = np.array([slot[2] for slot in slots], bool)
        # `call` creates columns in this order: significand, mark and exponent of each number; then each digit group,
        # the mark and the exponent of each slot; then one separator.
        numbers, ids = len(self.feature_map.numbers), len(slots)
        start = 3 * numbers
        end = start + (self.groups + 2) * ids
        by_name: dict[str, list[int]] = {}
        for index, name in enumerate(self.feature_map.numbers):
            by_name[name] = [index, numbers + index, 2 * numbers + index, end]
        for field, places, groups in written:
            parts = [
                start + part * ids + place for place in places for part in range(self.groups - groups, self.groups + 2)
            ]
            by_name[field.name] = [*parts, end]
        names = [field.name for field in features] + list(self.feature_map.dense)
        self.order = np.array([part for name in names for part in by_name[name]], np.int32)
        self.owners = [name for name in names for _ in by_name[name]]  # the feature of each token

    @property
    def length(self) -> int:
        """The number of tokens per row for all features."""
        return len(self.order)

    def call(self, inputs: Inputs) -> Tensor:
        """Returns the tokens of packed rows, int32 (batch_size, length).

        Args:
            inputs: `ids` int32 (batch_size, slots) and `numbers` int32 (batch_size, 2 * numbers); one may be absent if
                no feature is written from it.
        """
        parts: list[Tensor] = []
        if self.feature_map.numbers:
            parts += self._written_numbers(ops.cast(inputs["numbers"], "int32"))
        if len(self.slots):
            parts += self._written_ids(ops.take(ops.cast(inputs["ids"], "int32"), self.slots, axis=1))
        parts.append(ops.full_like(parts[0][:, :1], self.separator))
        return ops.take(ops.concatenate(parts, axis=1), self.order, axis=1)

    def _written_numbers(self, numbers: Tensor) -> list[Tensor]:
        """Returns the tokens of significands, marks and exponents, (batch_size, numbers) each."""
        significand, exponent = numbers[:, ::2], numbers[:, 1::2]
        mark = ops.where(significand < 0, self.exponent_mark + 1, self.exponent_mark)
        tokens = ops.take(self.significands, ops.absolute(significand), axis=0)
        return [tokens, mark, ops.take(self.exponents, exponent + MAX_EXPONENT, axis=0)]

    def _written_ids(self, ids: Tensor) -> list[Tensor]:
        """Returns the tokens of each group of digits, marks and exponents, (batch_size, slots) each."""
        local = ids - self.offsets
        ordinal = ops.maximum(local - np.where(self.is_time, RESERVED_IDS, RESERVED_IDS - 1), 0)
        missing = (local == 1) | (self.is_time & (local == 0))
        exponent = sum(ops.cast(ordinal >= 10**power, "int32") for power in range(1, _MOST_DIGITS))
        parts = []
        for group in reversed(range(self.groups)):
            tokens = ops.take(self.numbers, ordinal // _GROUP**group % _GROUP, axis=0)
            if group:
                parts.append(ops.where(ordinal >= _GROUP**group, tokens, self.padding))
            else:
                parts.append(ops.where(missing, self.unknown, tokens))
        parts += [ops.full_like(ids, self.exponent_mark), ops.take(self.numbers, exponent, axis=0)]
        return [ops.where(ids == PADDING_ID, self.padding, part) for part in parts]

    def compute_output_spec(self, inputs: Inputs) -> Tensor:
        rows = next(iter(inputs.values())).shape[0]
        return keras.KerasTensor((rows, self.length), "int32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "feature_map": self.feature_map.to_json()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "feature_map": FeatureMap.from_json(config["feature_map"])})
