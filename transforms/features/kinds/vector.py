"""Vectors in the transform: dense features of several columns."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ctrpipe.transforms.features.analyzers import Numbers
from ctrpipe.transforms.features.kinds.kind import KindTransform, LearnedNumbers, VocabularySize
from ctrpipe.transforms.features.slots import FieldSlots
from ctrpipe.transforms.features.vocabularies import Vocabularies
from ctrpipe.transforms.log.kinds.vector import Vector


@dataclasses.dataclass(frozen=True)
class VectorTransform(KindTransform[Vector]):
    """The transform of vectors. A vector with a NaN element is missing."""

    def plain(self, columns: list[tf.Tensor]) -> list[tf.Tensor]:
        return columns

    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        """Returns `dense`, float32 [N, columns * length], for columns [N, length]."""
        parts = []
        for name, values in columns.items():
            known = tf.reduce_all(tf.math.is_finite(values), axis=1, keepdims=True)
            parts.append(tf.where(known, self._scaled(values, numbers[name]), 0.0))
        return {"dense": tf.concat(parts, axis=1)}

    def _scaled(self, values: tf.Tensor, learned: npt.NDArray[np.float64]) -> tf.Tensor:
        if self.feature.transform == "standardize":
            mean, variance = learned
            scaled = (tf.cast(values, tf.float64) - mean) / np.sqrt(variance if variance > 0 else 1.0)
            return tf.cast(scaled, tf.float32)
        return unit_vectors(values) if self.feature.transform == "unit" else values

    def numbers(self, measured: Numbers) -> npt.NDArray[np.float64]:
        """Returns the mean and the variance of all elements for `standardize`, float64 [2]; otherwise [0]."""
        if self.feature.transform == "standardize":
            return np.array([measured.mean, measured.variance])
        return np.zeros(0)

    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        raise NotImplementedError  # a vector is no field


def unit_vectors(vectors: tf.Tensor) -> tf.Tensor:
    """Scales vectors [N, length] to length 1; a zero vector stays zero. float32 [N, length].

    Computes in float64, in which no square of a float32 number overflows.
    """
    wide = tf.cast(vectors, tf.float64)
    length = tf.sqrt(tf.reduce_sum(wide * wide, axis=1, keepdims=True))
    return tf.cast(tf.math.divide_no_nan(wide, length), tf.float32)
