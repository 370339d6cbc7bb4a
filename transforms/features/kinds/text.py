"""Texts in the transform: their tokens."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import tensorflow as tf

from ctrpipe.transforms.features.analyzers import LogSummary
from ctrpipe.transforms.features.kinds.kind import KindTransform, LearnedNumbers, VocabularySize
from ctrpipe.transforms.features.slots import FieldSlots
from ctrpipe.transforms.features.vocabularies import Vocabularies
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.text.tokenize import tokenize


@dataclasses.dataclass(frozen=True)
class TextTransform(KindTransform[Text]):
    """The transform of a text."""

    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        look_up = functools.partial(vocabularies.places_of, self.feature.columns[0])
        tokens = tokenize(list(columns.values()), self.feature, look_up)
        return {name: tf.cast(each, tf.int64) for name, each in zip(("tokens", "segments"), tokens, strict=True)}

    def vocabulary(self, column: str, summary: LogSummary) -> pa.LargeBinaryArray:
        return summary.tokens(self.feature)

    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        raise NotImplementedError  # a text is no field
