"""Lists of values in the transform."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ctrpipe.transforms.features.kinds.kind import (
    MISSING,
    PADDING,
    UNKNOWN,
    LearnedNumbers,
    VocabularySize,
    VocabularyTransform,
    constant,
)
from ctrpipe.transforms.features.slots import FieldSlots
from ctrpipe.transforms.features.vocabularies import Vocabularies
from ctrpipe.transforms.log.kinds.multivalent import Multivalent
from ctrpipe.transforms.text.ragged import first_filled


@dataclasses.dataclass(frozen=True)
class MultivalentTransform(VocabularyTransform[Multivalent]):
    """The transform of lists of values."""

    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        ids = [self._ids(column, values, vocabularies) for column, values in columns.items()]
        return {"ids": tf.concat(ids, axis=1)}

    def _ids(self, column: str, values: tf.Tensor, vocabularies: Vocabularies) -> tf.Tensor:
        """Returns the ids of the first max_length values of each row; a row without values begins with MISSING."""
        split = first_filled(values, self.feature.separator, self.feature.max_length)
        split = split.with_flat_values(self.whole_numbers(split.flat_values, column))
        tokens = split.to_tensor("", shape=[None, self.feature.max_length])
        places = vocabularies.places_of(column, tokens)
        known = self.local_ids(places, tokens, [vocabularies.sizes[column]], UNKNOWN)
        local = tf.where(tf.equal(tokens, ""), constant(PADDING), known)
        first = tf.where(local[:, :1] < 0, constant(MISSING), local[:, :1])
        return tf.concat([first, local[:, 1:]], axis=1)

    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        size = self.size(place.column, vocabulary_size)
        return (place.name, "multivalent", size, place.slots, self.feature.role)
