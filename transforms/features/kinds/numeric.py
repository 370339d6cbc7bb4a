"""Numbers in the transform: buckets and dense features."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ctrpipe.common import hooks
from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.analyzers import Numbers
from ctrpipe.transforms.features.kinds.kind import (
    MISSING,
    KindTransform,
    LearnedField,
    LearnedNumbers,
    VocabularySize,
    constant,
)
from ctrpipe.transforms.features.slots import FieldSlots
from ctrpipe.transforms.features.table_rows import NONE, Rows
from ctrpipe.transforms.features.vocabularies import Vocabularies
from ctrpipe.transforms.log.kinds.numeric import Numeric

# ln(2^32) = 22.2; larger numbers share the last bucket.
_MAX_LOG = 22
_BARS_SMALL = 3  # 0, 1 and 2 keep their value
_BARS_BUCKETS = _BARS_SMALL + _MAX_LOG * _MAX_LOG
LOG_BUCKETS = 2 + _MAX_LOG + 1
BARS_BUCKETS = 1 + _BARS_BUCKETS
# Hundredths of the range, and a bucket for the maximum (BERT4CTR, section 3.2).
MIN_MAX_BUCKETS = 101
# The default number of quantiles of scikit-learn's QuantileTransformer.
NORMALIZE_QUANTILES = 1000
_TRIED = [[0.0], [1.0], [-3.5], [1e6], [float("nan")]]  # on which the transform of a package is tried


@dataclasses.dataclass(frozen=True)
class NumericTransform(KindTransform[Numeric]):
    """The transform of numbers."""

    def plain(self, columns: list[tf.Tensor]) -> list[tf.Tensor]:
        return known_numbers(columns, self.spec.missing_numbers)

    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        values = tf.stack(list(columns.values()), axis=1)
        learned = np.stack([numbers[column] for column in columns])
        if self.feature.transform == "standardize":
            return {"dense": standardize(values, tf.constant(learned))}
        if self.feature.transform == "quantile_normalize":
            return {"dense": quantile_normalize(values, tf.constant(learned))}
        if self.feature.transform == "embed":
            uniform = quantile_normalize(values, tf.constant(learned))
            return {"dense": tf.where(tf.math.is_nan(values), -1.0, uniform)}
        if self.feature.is_hook:
            dense = hook_transform(self.feature.transform)(values)
            return {"dense": tf.where(tf.math.is_finite(dense), dense, 0.0)}
        if self.feature.transform == "log_bucketize":
            bucket = log_bucket(values)
        elif self.feature.transform == "bars_bucketize":
            bucket = bars_bucket(values)
        elif self.feature.transform == "min_max":
            bucket = min_max_bucket(values, tf.constant(learned), self._buckets)
        else:
            bucket = quantile_bucket(values, tf.constant(learned))
        return {"ids": tf.where(tf.math.is_nan(values), constant(MISSING), bucket + RESERVED_IDS)}

    def numbers(self, measured: Numbers) -> npt.NDArray[np.float64]:
        """Returns the numbers of a column's transform, float64.

        `standardize`: [2], mean and variance. `min_max`: [2], minimum and maximum. `quantile_bucketize`: [buckets - 1],
        the boundaries. `quantile_normalize` and `embed`: [NORMALIZE_QUANTILES], the quantiles. Others: [0].
        """
        if self.feature.transform == "standardize":
            return np.array([measured.mean, measured.variance])
        if self.feature.transform == "min_max":
            return np.array([measured.minimum, measured.maximum]) if measured.count else np.zeros(2)
        if self.feature.transform == "quantile_bucketize":
            return measured.quantiles(self._buckets)[1:-1]
        if self.feature.transform in ("quantile_normalize", "embed"):
            return measured.quantiles(NORMALIZE_QUANTILES - 1)
        return np.zeros(0)

    @property
    def _buckets(self) -> int:
        fixed = {"log_bucketize": LOG_BUCKETS, "bars_bucketize": BARS_BUCKETS, "min_max": MIN_MAX_BUCKETS}
        return self.feature.buckets or fixed[self.feature.transform]

    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        return (place.name, "numeric", self._buckets, place.slots, self.feature.role)

    def former_rows(self, column: str, field: LearnedField[Numeric], former: LearnedField[Numeric]) -> Rows:
        """Returns for each bucket the former bucket that contains its middle; reserved ids map to themselves."""
        if self.feature.transform != former.feature.transform:
            return np.full(field.size, NONE)
        own, its = field.numbers, former.numbers
        if field.size == former.size and np.array_equal(own, its, equal_nan=True):
            return np.arange(field.size)
        if self.feature.transform == "quantile_bucketize":
            middles = np.concatenate([np.nextafter(own[:1], -np.inf), (own[:-1] + own[1:]) / 2, own[-1:]])
            buckets = np.searchsorted(its, middles, side="right")
        else:  # min_max
            count, was = field.size - RESERVED_IDS, former.size - RESERVED_IDS
            share = np.minimum((np.arange(count) + 0.5) / (count - 1), 1.0)
            middles = own[0] + share * (own[1] - own[0])
            width = its[1] - its[0] if its[1] > its[0] else 1.0
            buckets = np.floor(np.clip((middles - its[0]) / width, 0.0, 1.0) * (was - 1)).astype(np.int64)
        return np.concatenate([np.arange(RESERVED_IDS), buckets + RESERVED_IDS])


def hook_transform(name: str) -> Callable[[tf.Tensor], tf.Tensor]:
    """Returns the transform of an installed package, after a trial on a few numbers in a graph.

    Raises:
        InputError: the transform is not installed, fails, or does not return a finite number for each number.
    """
    transform: Callable[[tf.Tensor], tf.Tensor] = hooks.load("transforms", name)
    with tf.init_scope(), hooks.failures("transforms", name):
        signature = [tf.TensorSpec([None, 1], tf.float32)]
        output = tf.function(transform, signature, autograph=False)(tf.constant(_TRIED))
        values = np.asarray(output)
    is_finite = values.dtype == np.float32 and bool(np.isfinite(values).all())
    if values.shape != (len(_TRIED), 1) or not is_finite:
        shown = f"{values.dtype} of shape {list(values.shape)}{'' if is_finite else ', not all of them finite floats,'}"
        raise InputError(
            f"the transform {name} returned {shown} for {len(_TRIED)} numbers; return a finite float32 for each, also "
            "for one that is missing (NaN)"
        )
    return transform


def known_numbers(columns: list[tf.Tensor], missing: Sequence[float]) -> list[tf.Tensor]:
    """Replaces the numbers that mean a missing value by NaN in columns [N]."""
    for number in missing:
        columns = [tf.where(tf.equal(column, number), np.float32("nan"), column) for column in columns]
    return columns


def clip(columns: list[tf.Tensor], limits: Sequence[npt.NDArray[np.float64]]) -> list[tf.Tensor]:
    """Clips each column, [N] or [N, length], to its limits.

    A number beyond the training rows would harm a prediction: 1e30 outweighs the rest of its row, and infinity makes
    the result NaN. A missing number, which is NaN, stays missing.
    """
    values = tf.stack(columns, axis=1)
    shape = [len(columns)] + [1] * (len(values.shape) - 2)
    low, high = (tf.constant(ends, tf.float32, shape) for ends in np.stack(limits, axis=1))
    values = tf.where(values < low, low, tf.where(values > high, high, values))
    clipped: list[tf.Tensor] = tf.unstack(values, axis=1)
    return clipped


def log_bucket(values: tf.Tensor) -> tf.Tensor:
    """Returns 0 for x < 0, 1 for 0 <= x < 1, otherwise 2 + floor(ln x), capped (Attention-Net, section 4.2). int64
    [N]."""
    large = 2 + tf.math.floor(tf.math.log(tf.maximum(values, 1.0)))
    bucket = tf.where(values >= 1, tf.minimum(large, LOG_BUCKETS - 1), tf.where(values >= 0, 1.0, 0.0))
    return tf.cast(tf.where(tf.math.is_nan(values), 0.0, bucket), tf.int64)


def bars_bucket(values: tf.Tensor) -> tf.Tensor:
    """Returns BARS' bucket plus one: floor(ln(x)^2) for x > 2, otherwise floor(x); 0 for negative numbers. int64 [N].

    floor(ln(3)^2) is 1: as in BARS, x = 3 shares an id with x = 1.
    """
    log = tf.math.log(tf.maximum(values, 1.0))
    large = tf.minimum(tf.math.floor(log * log), float(BARS_BUCKETS - 2))
    bucket = 1 + tf.where(values > 2, large, tf.math.floor(tf.maximum(values, -1.0)))
    return tf.cast(tf.where(tf.math.is_nan(values), 0.0, bucket), tf.int64)


def quantile_bucket(values: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    """Returns the number of the column's boundaries, float64 [C, B], that are at most x. int64 [N, C]."""
    return tf.transpose(_places(values, boundaries, "right"))


def _places(values: tf.Tensor, sorted_numbers: tf.Tensor, side: str) -> tf.Tensor:
    """Returns the index of each value, [N, C], among its column's sorted numbers, float64 [C, B]. int64 [C, N]."""
    wide = tf.transpose(tf.cast(values, tf.float64))
    return tf.searchsorted(sorted_numbers, wide, side, out_type=tf.int64)


def min_max_bucket(values: tf.Tensor, limits: tf.Tensor, buckets: int) -> tf.Tensor:
    """Returns floor((x - least) / (greatest - least) * (buckets - 1)), clipped to [0, buckets - 1]. int64 [N, C].

    `limits` holds the minimum and maximum of each column, float64 [C, 2].
    """
    least, greatest = limits[:, 0], limits[:, 1]
    width = tf.where(greatest > least, greatest - least, 1.0)
    scaled = tf.clip_by_value((tf.cast(values, tf.float64) - least) / width, 0.0, 1.0)
    bucket = tf.math.floor(scaled * (buckets - 1))
    return tf.cast(tf.where(tf.math.is_nan(values), tf.zeros_like(bucket), bucket), tf.int64)


def standardize(values: tf.Tensor, moments: tf.Tensor) -> tf.Tensor:
    """Returns (x - mean) / standard deviation; 0 if x is missing or not finite. float32 [N, C].

    `moments` holds the mean and variance of each column, float64 [C, 2].
    """
    mean, variance = moments[:, 0], moments[:, 1]
    scaled = (tf.cast(values, tf.float64) - mean) / tf.sqrt(tf.where(variance > 0, variance, 1.0))
    return tf.where(tf.math.is_finite(values), tf.cast(scaled, tf.float32), 0.0)


def quantile_normalize(values: tf.Tensor, quantiles: tf.Tensor) -> tf.Tensor:
    """Maps values to a uniform distribution on [0, 1], like scikit-learn's QuantileTransformer. float32 [N, C].

    Interpolates linearly between a column's quantiles, float64 [C, Q]. A value that equals several quantiles is mapped
    to the middle of their ranks. Values up to the first quantile become 0, values from the last quantile on become 1,
    and missing values become 0.5.
    """
    steps = quantiles.shape[1] - 1
    wide = tf.transpose(tf.cast(values, tf.float64))
    left, right = _places(values, quantiles, "left"), _places(values, quantiles, "right")
    before = tf.clip_by_value(right - 1, 0, steps - 1)
    low, high = tf.gather(quantiles, before, batch_dims=1), tf.gather(quantiles, before + 1, batch_dims=1)
    between = tf.cast(before, tf.float64) + tf.math.divide_no_nan(wide - low, high - low)
    place = tf.where(left < right, tf.cast(left + right - 1, tf.float64) / 2, between) / steps
    uniform = tf.where(wide >= quantiles[:, -1:], 1.0, tf.cast(place, tf.float32))
    uniform = tf.where(wide <= quantiles[:, :1], 0.0, uniform)
    return tf.transpose(tf.where(tf.math.is_nan(wide), 0.5, uniform))
