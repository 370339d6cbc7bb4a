"""Raw columns -> packed tensors, as one TensorFlow graph for training and serving (TensorFlow Transform)."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from models.feature_map import RESERVED_IDS, FeatureMap
from transforms.errors import InputError
from transforms.spec import Categorical, LogSpec, Multivalent, Numeric

UNKNOWN, MISSING = 0, 1  # a field's local ids ahead of its vocabulary; see models.feature_map
# TFT writes this line into a vocabulary that is empty, because a lookup table cannot be.
_EMPTY_VOCABULARY = b"49d0cd50-04bb-48c0-bc6f-5b575dce351a"
# float32 holds integers of 2^32 and more; ln(2^32) = 22.2. What is above shares the last bucket.
_MAX_LOG = 22
_BARS_SMALL = 3  # 0, 1 and 2 keep their value
_BARS_BUCKETS = _BARS_SMALL + _MAX_LOG * _MAX_LOG
LOG_BUCKETS = 2 + _MAX_LOG + 1
BARS_BUCKETS = 1 + _BARS_BUCKETS
_TIME_PARTS = {"hour": 24, "weekday": 7, "is_weekend": 2}


def preprocessing_fn(inputs: dict[str, tf.Tensor], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """TFX Transform's entry point; `custom_config["spec"]` is the LogSpec as JSON.

    Args:
        inputs: [N] tensors, float32 with NaN or string with "" where a value is missing.

    Returns:
        `ids` int64 [N, S], `dense` float32 [N, D] where there are dense features, `label` float32 [N, tasks].
    """
    spec = LogSpec.model_validate_json(custom_config["spec"])
    outputs = pack(inputs, spec)
    outputs["label"] = tf.stack([tf.reshape(inputs[name], [-1]) for name in spec.label_columns], axis=1)
    return outputs


def pack(inputs: dict[str, tf.Tensor], spec: LogSpec) -> dict[str, tf.Tensor]:
    """The features of `preprocessing_fn`, without the label."""
    slots: list[tf.Tensor] = []  # each int64 [N, slots of the field]
    dense: list[tf.Tensor] = []
    offset = tf.constant(1, tf.int64)  # id 0 is padding
    for feature in spec.features:
        for column in feature.columns:
            values = tf.reshape(inputs[column], [-1])
            if isinstance(feature, Numeric) and feature.transform == "standardize":
                dense.append(standardize(values))
                continue
            for local, size in _local_ids(values, column, feature):
                slots.append(tf.where(local < 0, tf.constant(0, tf.int64), local + offset))
                offset += tf.cast(size, tf.int64) + RESERVED_IDS
    outputs = {}
    if slots:
        outputs["ids"] = tf.concat(slots, axis=1)
    if dense:
        outputs["dense"] = tf.stack(dense, axis=1)
    return outputs


def _local_ids(values: tf.Tensor, column: str, feature: Any) -> list[tuple[tf.Tensor, Any]]:
    """Per field of the column: ids int64 [N, slots] with -1 = padding, and the vocabulary's size."""
    if isinstance(feature, Numeric):
        bucket, size = {"log_bucketize": (log_bucket, LOG_BUCKETS), "bars_bucketize": (bars_bucket, BARS_BUCKETS)}[
            feature.transform
        ]
        local = tf.where(tf.math.is_nan(values), tf.constant(MISSING, tf.int64), bucket(values) + RESERVED_IDS)
        return [(local[:, None], size)]
    if isinstance(feature, Categorical):
        return [_categorical(values, column, feature)]
    if isinstance(feature, Multivalent):
        return [_multivalent(values, column, feature)]
    return time_ids(values)


def log_bucket(values: tf.Tensor) -> tf.Tensor:
    """0 for x < 0, 1 for 0 <= x < 1, 2 + floor(ln x) from 1 on, capped (Attention-Net, section 4.2). int64 [N]."""
    large = 2 + tf.math.floor(tf.math.log(tf.maximum(values, 1.0)))
    bucket = tf.where(values >= 1, tf.minimum(large, LOG_BUCKETS - 1), tf.where(values >= 0, 1.0, 0.0))
    return tf.cast(tf.where(tf.math.is_nan(values), 0.0, bucket), tf.int64)


def bars_bucket(values: tf.Tensor) -> tf.Tensor:
    """BARS: floor(ln(x)^2) for x > 2, else x; shifted by one, so that 0 holds the negative values. int64 [N].

    floor(ln(3)^2) is 1, which BARS lets share an id with x = 1; so it is here.
    """
    log = tf.math.log(tf.maximum(values, 1.0))
    large = tf.minimum(tf.math.floor(log * log), float(BARS_BUCKETS - 2))
    bucket = 1 + tf.where(values > 2, large, tf.math.floor(tf.maximum(values, -1.0)))
    return tf.cast(tf.where(tf.math.is_nan(values), 0.0, bucket), tf.int64)


def standardize(values: tf.Tensor) -> tf.Tensor:
    """(x - mean) / standard deviation over the training rows; a missing value becomes 0, the mean. float32 [N]."""
    present = tf.boolean_mask(values, tf.math.is_finite(values))
    mean, variance = tft.mean(present), tft.var(present)
    scaled = (values - mean) / tf.sqrt(tf.where(variance > 0, variance, 1.0))
    return tf.where(tf.math.is_finite(values), scaled, 0.0)


def _vocabulary(values: tf.Tensor, column: str, top_k: int | None, min_count: int) -> tuple[Any, tf.Tensor]:
    """The vocabulary file of the non-missing values, and its size."""
    name = vocabulary_name(column)
    present = tf.boolean_mask(values, tf.not_equal(values, ""))
    file = tft.vocabulary(present, top_k=top_k, frequency_threshold=min_count, vocab_filename=name, name=name)
    return file, tft.experimental.get_vocabulary_size_by_name(name)


def _lookup(values: tf.Tensor, file: Any) -> tf.Tensor:
    found = tft.apply_vocabulary(values, file, default_value=-1)
    return tf.where(found < 0, tf.constant(UNKNOWN, tf.int64), found + RESERVED_IDS)


def _categorical(values: tf.Tensor, column: str, feature: Categorical) -> tuple[tf.Tensor, Any]:
    if feature.transform == "hash":
        known = tf.strings.to_hash_bucket_fast(values, int(feature.buckets or 0)) + RESERVED_IDS
        size: Any = feature.buckets
    else:
        file, size = _vocabulary(values, column, feature.top_k, feature.min_count)
        known = _lookup(values, file)
    local = tf.where(tf.equal(values, ""), tf.constant(MISSING, tf.int64), known)
    return local[:, None], size


def _multivalent(values: tf.Tensor, column: str, feature: Multivalent) -> tuple[tf.Tensor, Any]:
    """The first max_length values of each row; a row without any has the missing id in its first slot."""
    split = tf.strings.split(values, feature.separator)
    split = tf.ragged.boolean_mask(split, tf.not_equal(split, ""))
    file, size = _vocabulary(split.flat_values, column, feature.top_k, feature.min_count)
    tokens = split.to_tensor("", shape=[None, feature.max_length])
    local = tf.where(tf.equal(tokens, ""), tf.constant(-1, tf.int64), _lookup(tokens, file))
    first = tf.where(local[:, :1] < 0, tf.constant(MISSING, tf.int64), local[:, :1])
    return tf.concat([first, local[:, 1:]], axis=1), size


def time_ids(values: tf.Tensor) -> list[tuple[tf.Tensor, int]]:
    """hour, weekday (0 = Monday) and is_weekend of YYMMDDHH strings; another text is unknown, "" is missing."""
    valid = tf.strings.regex_full_match(values, r"\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])([01]\d|2[0-3])")
    number = tf.strings.to_number(tf.where(valid, values, "00010100"), tf.int64)
    year, month, day, hour = number // 1_000_000 + 2000, number // 10_000 % 100, number // 100 % 100, number % 100
    # Days since 0000-03-01 of the proleptic Gregorian calendar; a year starts in March, so that leap days end it.
    shifted = tf.where(month > 2, year, year - 1)
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400
    days += (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    weekday = (days + 2) % 7  # 0000-03-01 was a Wednesday
    parts = {"hour": hour, "weekday": weekday, "is_weekend": tf.cast(weekday >= 5, tf.int64)}
    absent = tf.where(tf.equal(values, ""), tf.constant(MISSING, tf.int64), tf.constant(UNKNOWN, tf.int64))
    result = []
    for part, size in _TIME_PARTS.items():
        local = tf.where(valid, parts[part] + RESERVED_IDS, absent)
        result.append((local[:, None], size))
    return result


def vocabulary_name(column: str) -> str:
    """The asset's name for a column's vocabulary, of letters, digits and _ only: TFT drops or merges the others."""
    safe = "".join(c if c.isalnum() and c.isascii() else f"_{ord(c):x}_" for c in column)
    return f"vocabulary_{safe}"


def feature_map(spec: LogSpec, transform: tft.TFTransformOutput) -> FeatureMap:
    """The feature map of a finished transform.

    Raises:
        InputError: a vocabulary has no entry, or all together need more ids than int32 has.
    """
    return layout(spec, lambda column, feature: _vocabulary_size(transform, column, feature))


def layout(spec: LogSpec, vocabulary_size: Callable[[str, Categorical | Multivalent], int]) -> FeatureMap:
    """The feature map of a log whose vocabularies have the sizes that `vocabulary_size(column, feature)` gives.

    Raises:
        InputError: all together need more ids than int32 has.
    """
    fields: list[tuple[str, str, int, int, str]] = []
    dense: list[str] = []
    for feature in spec.features:
        for column in feature.columns:
            if isinstance(feature, Numeric):
                if feature.transform == "standardize":
                    dense.append(column)
                else:
                    size = LOG_BUCKETS if feature.transform == "log_bucketize" else BARS_BUCKETS
                    fields.append((column, "numeric", size, 1, feature.role))
            elif isinstance(feature, Categorical) and feature.transform == "hash":
                fields.append((column, "categorical", int(feature.buckets or 0), 1, feature.role))
            elif isinstance(feature, Categorical | Multivalent):
                slots = feature.max_length if isinstance(feature, Multivalent) else 1
                size = vocabulary_size(column, feature)
                fields.append((column, feature.kind, size, slots, feature.role))
            else:
                fields += [(f"{column}_{part}", "time", size, 1, feature.role) for part, size in _TIME_PARTS.items()]
    try:
        return FeatureMap.from_sizes(fields, tuple(dense), tuple(spec.data.labels))
    except ValueError as error:
        raise InputError(f"features: {error}; lower top_k or raise min_count") from error


def _vocabulary_size(transform: tft.TFTransformOutput, column: str, feature: Categorical | Multivalent) -> int:
    values = transform.vocabulary_by_name(vocabulary_name(column))
    if list(values) == [_EMPTY_VOCABULARY]:
        raise InputError(
            f"features: the vocabulary of {column} has no entry: no value occurs {feature.min_count} times in the "
            "training rows; lower min_count or remove the column"
        )
    return len(values)
