"""Features written as numbers, which NumBERT reads with the text."""

from typing import Any, Self

import keras
import numpy as np
from keras import ops

from models.feature_map import NUMBER_TOKENS, FeatureMap, Text
from models.tensors import Tensor

TOKENS_PER_FEATURE = 4
_SIGNIFICANT = 100  # a significand has two digits, so that it is one token


def new_tokens(text: Text) -> int:
    """Returns how many tokens the vocabulary needs in addition: [EXP], and the numbers 0 to 99 unless it has them."""
    return 1 if text.number_ids else 1 + NUMBER_TOKENS


@keras.saving.register_keras_serializable(package="ctrpipe")
class NumberTokens(keras.layers.Layer):
    """Writes each feature as the four tokens `significand [EXP] exponent [SEP]`.

    35 is "35 [EXP] 1" and 1234 is "12 [EXP] 3": the significand is rounded to two digits. Features are all fields
    but the positions. A field's number is its ordinal: 0 for unknown and missing, then 1, 2 and so on in the order
    of its buckets or of its vocabulary.

    Args:
        feature_map: FeatureMap. The fields, of one slot each, and the text. [EXP] is a new token after the vocabulary;
            so are the numbers 0 to 99 where the vocabulary lacks them.

    Example:
        >>> text = Text(length=8, vocabulary_size=130, number_ids=tuple(range(30, 130)))
        >>> feature_map = FeatureMap.from_sizes([("price", "numeric", 2000)], text=text)
        >>> print(NumberTokens(feature_map)(keras.ops.array([[1236]])).numpy())  # ordinal 1234: 12 [EXP] 3 [SEP]
        [[ 42 130  33   3]]

    Raises:
        ValueError: there is no text or no field, or a field has several values.

    References:
        Wang et al., "BERT4CTR", 2023, section 3.2.1; Zhang et al., "Do Language Embeddings Capture Scales?", 2020.
    """

    def __init__(self, feature_map: FeatureMap, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        features = [field for field in feature_map.fields if field.role == "feature"]
        multivalent = [field.name for field in feature_map.fields if field.slots > 1]
        if multivalent:
            raise ValueError(f"A feature with several values cannot be written as one number. Received: {multivalent}")
        if not features:
            raise ValueError("There is no field to write as a number")
        self.feature_map = feature_map
        text = feature_map.text
        if text is None:
            raise ValueError("There is no text to write numbers into")
        self.exponent_mark = text.vocabulary_size
        self.separator = text.separator_id
        new = range(text.vocabulary_size + 1, text.vocabulary_size + 1 + NUMBER_TOKENS)
        self.numbers = np.array(text.number_ids or new, np.int32)
        self.offsets = np.array([field.offset for field in features], np.int32)

    @property
    def length(self) -> int:
        """The number of tokens for the features of a row."""
        return TOKENS_PER_FEATURE * len(self.offsets)

    def call(self, ids: Tensor) -> Tensor:
        """Maps the features' ids, int32 (batch_size, features), to tokens, int32 (batch_size, 4 * features)."""
        number = ops.cast(ops.maximum(ids - self.offsets - 1, 0), "int32")
        # Compared with integers, because a float's logarithm is off by one at some powers of ten.
        exponent = sum(ops.cast(number >= 10**power, "int32") for power in range(1, 10))
        divisor = ops.take(np.array([1, 1, *(10**power for power in range(1, 9))], np.int32), exponent, axis=0)
        significand = number // divisor + ops.cast(2 * (number % divisor) >= divisor, "int32") * ops.cast(
            divisor > 1, "int32"
        )
        carried = significand >= _SIGNIFICANT  # 996 is 10 [EXP] 3
        significand = ops.where(carried, significand // 10, significand)
        exponent = exponent + ops.cast(carried, "int32")
        mark = ops.full_like(number, self.exponent_mark)
        separator = ops.full_like(number, self.separator)
        tokens = [
            ops.take(self.numbers, significand, axis=0),
            mark,
            ops.take(self.numbers, exponent, axis=0),
            separator,
        ]
        return ops.reshape(ops.stack(tokens, axis=2), (-1, self.length))

    def compute_output_spec(self, ids: Tensor) -> Tensor:
        return keras.KerasTensor((ids.shape[0], self.length), "int32")

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "feature_map": self.feature_map.to_json()}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(**{**config, "feature_map": FeatureMap.from_json(config["feature_map"])})
