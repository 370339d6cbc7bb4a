"""Sequences in the transform: histories whose items are in order."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from ctrpipe.transforms.features.kinds.categorical import CategoricalTransform
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
from ctrpipe.transforms.log.kinds.sequence import ItemSequence
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.text.ragged import first_filled, last_parts


@dataclasses.dataclass(frozen=True)
class SequenceTransform(VocabularyTransform[ItemSequence]):
    """The transform of sequences."""

    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        ids = [self._ids(column, values, vocabularies) for column, values in columns.items()]
        return {"ids": tf.concat(ids, axis=1)}

    def _ids(self, column: str, values: tf.Tensor, vocabularies: Vocabularies) -> tf.Tensor:
        """Returns the ids of the last max_length values of each row, in order; an empty value has the missing id."""
        kept = last_parts(values, self.feature.separator, self.feature.max_length)
        if self.feature.item_values(column) > 1:
            return self._ids_of_several(column, values, kept, vocabularies)
        kept = kept.with_flat_values(self.whole_numbers(kept.flat_values, column))
        tokens = kept.to_tensor("", shape=[None, self.feature.max_length])
        owner = self.feature.owner_of(column)
        local = self._owner(owner).look_up_tokens(owner, tokens, vocabularies)
        lengths = tf.where(tf.equal(values, ""), constant(0), tf.cast(kept.row_lengths(), tf.int64))
        is_item = tf.range(self.feature.max_length, dtype=tf.int64) < lengths[:, None]
        return tf.where(is_item, local, constant(PADDING))

    def _ids_of_several(
        self, column: str, values: tf.Tensor, kept: tf.RaggedTensor, vocabularies: Vocabularies
    ) -> tf.Tensor:
        """Returns the ids of items that hold several values, [N, max_length * values]. An empty item has the missing
        id.
        """
        length, most = self.feature.max_length, self.feature.item_values(column)
        items = kept.to_tensor("", shape=[None, length])
        parts = first_filled(tf.reshape(items, [-1]), self.feature.inner_separator(column), most)
        parts = parts.with_flat_values(self.whole_numbers(parts.flat_values, column))
        tokens = parts.to_tensor("", shape=[None, most])
        owner = self.feature.owner_of(column)
        local = self._owner(owner).look_up_tokens(owner, tokens, vocabularies)
        count = tf.maximum(tf.cast(parts.row_lengths(), tf.int64), 1)  # an empty item is one missing value
        is_value = tf.range(most, dtype=tf.int64) < count[:, None]
        lengths = tf.where(tf.equal(values, ""), constant(0), tf.cast(kept.row_lengths(), tf.int64))
        is_item = tf.reshape(tf.range(length, dtype=tf.int64) < lengths[:, None], [-1, 1])
        ids = tf.where(is_value & is_item, local, constant(PADDING))
        return tf.reshape(ids, [-1, length * most])

    def _owner(self, owner: str) -> "CategoricalTransform | SequenceTransform":
        """Returns the transform of the column whose vocabulary contains the values."""
        shared = self.spec.feature_by_column[owner]
        return _LENDERS[shared.kind](shared, self.spec)

    def look_up_tokens(self, column: str, tokens: tf.Tensor, vocabularies: Vocabularies) -> tf.Tensor:
        """Returns the local ids of tokens in the column's vocabulary, [N, slots]; "" is missing."""
        places = vocabularies.places_of(column, tokens)
        local = self.local_ids(places, tokens, [vocabularies.sizes[column]], UNKNOWN)
        return tf.where(tf.equal(tokens, ""), constant(MISSING), local)

    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        owner, feature = self.feature.owner_of(place.column), self.feature
        size = self._owner(owner).size(owner, vocabulary_size)
        is_own = owner == place.column
        pooling = "mean" if is_own and feature.pooling == "attention" else feature.pooling
        shared_with = "" if is_own else owner
        read = (feature.role, pooling, shared_with, feature.columns[0])
        several = feature.item_values(place.column)
        return (place.name, "sequence", size, place.slots, *read, *((False, several) if several > 1 else ()))


# The transforms of the kinds that lend a vocabulary (see Kind.lends_vocabulary).
_LENDERS: Mapping[str, Callable[[Any, LogSpec], CategoricalTransform | SequenceTransform]] = {
    "categorical": CategoricalTransform,
    "sequence": SequenceTransform,
}
