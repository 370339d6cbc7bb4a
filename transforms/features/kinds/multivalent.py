"""Lists of values in the transform."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ctrpipe.models.base.feature_map import SLOT_WEIGHTS
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
from ctrpipe.transforms.log.weighted import LARGEST, weight_pattern
from ctrpipe.transforms.text.ragged import first_filled


@dataclasses.dataclass(frozen=True)
class MultivalentTransform(VocabularyTransform[Multivalent]):
    """The transform of lists of values."""

    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        if not self.feature.is_weighted:
            ids = [self._ids(column, self._split(values), vocabularies) for column, values in columns.items()]
            return {"ids": tf.concat(ids, axis=1)}
        parts = [
            self._weighted_ids(column, values, numbers.get(column), vocabularies) for column, values in columns.items()
        ]
        ids, weights = (tf.concat(each, axis=1) for each in zip(*parts, strict=True))
        return {"ids": ids, SLOT_WEIGHTS: weights}

    def _split(self, values: tf.Tensor) -> tf.RaggedTensor:
        return first_filled(values, self.feature.separator, self.feature.max_length)

    def _ids(self, column: str, split: tf.RaggedTensor, vocabularies: Vocabularies) -> tf.Tensor:
        """Returns the ids of the first max_length values of each row; a row without values begins with MISSING."""
        split = split.with_flat_values(self.whole_numbers(split.flat_values, column))
        tokens = split.to_tensor("", shape=[None, self.feature.max_length])
        places = vocabularies.places_of(column, tokens)
        known = self.local_ids(places, tokens, [vocabularies.sizes[column]], UNKNOWN)
        local = tf.where(tf.equal(tokens, ""), constant(PADDING), known)
        first = tf.where(local[:, :1] < 0, constant(MISSING), local[:, :1])
        return tf.concat([first, local[:, 1:]], axis=1)

    def _weighted_ids(
        self, column: str, values: tf.Tensor, limits: npt.NDArray[np.float64] | None, vocabularies: Vocabularies
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns `_ids` and the weight of each slot, [N, slots]: before the pooling, 0 for padding and 1 for
        MISSING.
        """
        split = self._split(values)
        names, weights = self._parted(split.flat_values)
        if limits is not None:
            weights = tf.clip_by_value(weights, *limits.tolist())
        ids = self._ids(column, split.with_flat_values(names), vocabularies)
        of_slots = split.with_flat_values(weights).to_tensor(0.0, shape=[None, self.feature.max_length])
        of_slots = tf.where(ids < 0, 0.0, tf.where(tf.equal(ids, constant(MISSING)), 1.0, of_slots))
        if self.feature.pooling == "mean":
            of_slots = tf.math.divide_no_nan(of_slots, tf.reduce_sum(tf.abs(of_slots), axis=1, keepdims=True))
        return ids, of_slots

    def _parted(self, elements: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Splits elements into names and weights, [N] each. The weight is 1 for an element without a readable
        weight.
        """
        if self.feature.weights is None:
            return elements, tf.ones_like(elements, tf.float32)
        pattern = weight_pattern(self.feature.weights)
        is_weighted = tf.strings.regex_full_match(elements, pattern)
        texts = tf.where(is_weighted, tf.strings.regex_replace(elements, pattern, r"\2", replace_global=False), "1")
        weights = tf.clip_by_value(tf.strings.to_number(texts, tf.float64), -LARGEST, LARGEST)
        # Without a weight nothing matches, and the element stays as it is.
        names = tf.strings.regex_replace(elements, pattern, r"\1", replace_global=False)
        return names, tf.cast(weights, tf.float32)

    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        size = self.size(place.column, vocabulary_size)
        weighted = ("sum", "", "", True) if self.feature.is_weighted else ()  # a mean is in the weights
        return (place.name, "multivalent", size, place.slots, self.feature.role, *weighted)
