"""Raw columns -> packed tensors, as one TensorFlow graph for training and serving (TensorFlow Transform)."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_transform as tft

from models.feature_map import RESERVED_IDS, FeatureMap
from transforms.errors import InputError
from transforms.fused_analyzers import EMPTY_VOCABULARY, numbers, vocabulary_files, vocabulary_name
from transforms.spec import Categorical, LogSpec, Multivalent, Numeric

UNKNOWN, MISSING = 0, 1  # a field's local ids ahead of its vocabulary; see models.feature_map
# float32 holds integers of 2^32 and more; ln(2^32) = 22.2. What is above shares the last bucket.
_MAX_LOG = 22
_BARS_SMALL = 3  # 0, 1 and 2 keep their value
_BARS_BUCKETS = _BARS_SMALL + _MAX_LOG * _MAX_LOG
LOG_BUCKETS = 2 + _MAX_LOG + 1
BARS_BUCKETS = 1 + _BARS_BUCKETS
# Hundredths of the range, and the greatest value for itself (BERT4CTR, section 3.2).
MIN_MAX_BUCKETS = 101
_TIME_PARTS = {"hour": 24, "weekday": 7, "is_weekend": 2}


def preprocessing_fn(inputs: dict[str, tf.Tensor], custom_config: dict[str, Any]) -> dict[str, tf.Tensor]:
    """TFX Transform's entry point.

    Args:
        inputs: [N] tensors, float32 with NaN or string with "" where a value is missing.
        custom_config: `spec` is the LogSpec as JSON; `summary` a file with the LogSummary of the training rows, without
            which the rows that TFT analyses are summarized.

    Returns:
        `ids` int64 [N, S], `dense` float32 [N, D] where there are dense features, `label` float32 [N, tasks].
    """
    spec = LogSpec.model_validate_json(custom_config["spec"])
    outputs = pack(inputs, spec, custom_config.get("summary"))
    outputs["label"] = tf.stack([tf.reshape(inputs[name], [-1]) for name in spec.label_columns], axis=1)
    return outputs


def pack(inputs: dict[str, tf.Tensor], spec: LogSpec, summary: str | None = None) -> dict[str, tf.Tensor]:
    """The features of `preprocessing_fn`, without the label."""
    analyzed = numbers(inputs, spec, summary)
    files = vocabulary_files(inputs, spec, summary)
    slots: list[tf.Tensor] = []  # each int64 [N, slots of the field]
    dense: list[tf.Tensor] = []
    offset = tf.constant(1, tf.int64)  # id 0 is padding
    for column, feature in spec.feature_by_column.items():
        values = tf.reshape(inputs[column], [-1])
        if isinstance(feature, Numeric) and feature.is_dense:
            normalize = standardize if feature.transform == "standardize" else quantile_normalize
            dense.append(normalize(values, analyzed[column]))
            continue
        for local, size in _local_ids(values, feature, analyzed.get(column), files.get(column)):
            slots.append(tf.where(local < 0, tf.constant(0, tf.int64), local + offset))
            offset += tf.cast(size, tf.int64) + RESERVED_IDS
    outputs = {}
    if slots:
        outputs["ids"] = tf.concat(slots, axis=1)
    if dense:
        outputs["dense"] = tf.stack(dense, axis=1)
    return outputs


def _local_ids(values: tf.Tensor, feature: Any, analyzed: Any, file: Any) -> list[tuple[tf.Tensor, Any]]:
    """Per field of the column: ids int64 [N, slots] with -1 = padding, and their number without the reserved ones.

    `analyzed` and `file` are what `numbers` and `vocabulary_files` give for the column.
    """
    if isinstance(feature, Numeric):
        bucket = _bucket(values, feature, analyzed) + RESERVED_IDS
        return [(tf.where(tf.math.is_nan(values), _id(MISSING), bucket)[:, None], bucket_count(feature))]
    if isinstance(feature, Categorical):
        return [_categorical(values, feature, analyzed, file)]
    if isinstance(feature, Multivalent):
        return [_multivalent(values, feature, analyzed, file)]
    return time_ids(values)


def _id(local: int) -> tf.Tensor:
    return tf.constant(local, tf.int64)


def bucket_count(feature: Numeric) -> int:
    """The buckets of a numeric column that is not dense."""
    fixed = {"log_bucketize": LOG_BUCKETS, "bars_bucketize": BARS_BUCKETS, "min_max": MIN_MAX_BUCKETS}
    return feature.buckets or fixed[feature.transform]


def _bucket(values: tf.Tensor, feature: Numeric, analyzed: Any) -> tf.Tensor:
    if feature.transform == "log_bucketize":
        return log_bucket(values)
    if feature.transform == "bars_bucketize":
        return bars_bucket(values)
    if feature.transform == "min_max":
        return min_max_bucket(values, analyzed, bucket_count(feature))
    return quantile_bucket(values, analyzed)


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


def quantile_bucket(values: tf.Tensor, boundaries: tf.Tensor) -> tf.Tensor:
    """How many boundaries are at most x. int64 [N]."""
    return tf.searchsorted(boundaries, tf.cast(values, tf.float64), side="right", out_type=tf.int64)


def min_max_bucket(values: tf.Tensor, least_and_greatest: tf.Tensor, buckets: int) -> tf.Tensor:
    """floor((x - least) / (greatest - least) * (buckets - 1)), clipped to [0, buckets - 1]. int64 [N]."""
    least, greatest = least_and_greatest[0], least_and_greatest[1]
    width = tf.where(greatest > least, greatest - least, 1.0)
    scaled = tf.clip_by_value((tf.cast(values, tf.float64) - least) / width, 0.0, 1.0)
    bucket = tf.math.floor(scaled * (buckets - 1))
    return tf.cast(tf.where(tf.math.is_nan(values), tf.zeros_like(bucket), bucket), tf.int64)


def standardize(values: tf.Tensor, mean_and_variance: tf.Tensor) -> tf.Tensor:
    """(x - mean) / standard deviation; what is missing or not finite becomes 0, the mean. float32 [N]."""
    mean, variance = mean_and_variance[0], mean_and_variance[1]
    scaled = (tf.cast(values, tf.float64) - mean) / tf.sqrt(tf.where(variance > 0, variance, 1.0))
    return tf.where(tf.math.is_finite(values), tf.cast(scaled, tf.float32), 0.0)


def quantile_normalize(values: tf.Tensor, quantiles: tf.Tensor) -> tf.Tensor:
    """To uniform in [0, 1] as scikit-learn's QuantileTransformer; a missing value becomes 0.5. float32 [N].

    Linear between quantiles; the middle of its share for a value that several quantiles have; 0 up to the first
    quantile, 1 from the last on.
    """
    wide = tf.cast(values, tf.float64)
    below = tft.apply_buckets_with_interpolation(wide, quantiles[None])
    above = tft.apply_buckets_with_interpolation(-wide, -quantiles[None, ::-1])
    uniform = (below + 1 - above) / 2
    uniform = tf.where(wide >= quantiles[-1], tf.ones_like(uniform), uniform)
    uniform = tf.where(wide <= quantiles[0], tf.zeros_like(uniform), uniform)
    return tf.cast(uniform, tf.float32)


def _lookup(
    values: tf.Tensor, feature: Categorical | Multivalent, lines: tf.Tensor, file: tf.Tensor, unknown: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Local ids: `unknown`, the vocabulary's, then further unknown ids where there are several. And their number."""
    size = tf.cast(lines[0], tf.int64)
    if feature.oov_buckets == 1:
        found = tft.apply_vocabulary(values, file, default_value=-1)
        return tf.where(found < 0, _id(unknown), found + RESERVED_IDS), size
    found = tft.apply_vocabulary(values, file, num_oov_buckets=feature.oov_buckets)
    shifted = tf.where(found > size, found - 1, found) + RESERVED_IDS
    return tf.where(tf.equal(found, size), _id(unknown), shifted), size + feature.oov_buckets - 1


def _categorical(values: tf.Tensor, feature: Categorical, lines: Any, file: Any) -> tuple[tf.Tensor, Any]:
    if feature.transform == "hash":
        size: Any = feature.buckets
        known = tf.strings.to_hash_bucket_fast(values, int(size)) + RESERVED_IDS
    else:
        known, size = _lookup(values, feature, lines, file, MISSING if feature.missing_rate else UNKNOWN)
    return tf.where(tf.equal(values, ""), _id(MISSING), known)[:, None], size


def _multivalent(values: tf.Tensor, feature: Multivalent, lines: Any, file: Any) -> tuple[tf.Tensor, Any]:
    """The first max_length values of each row; a row without any has the missing id in its first slot."""
    split = tf.strings.split(values, feature.separator)
    split = tf.ragged.boolean_mask(split, tf.not_equal(split, ""))
    tokens = split.to_tensor("", shape=[None, feature.max_length])
    known, size = _lookup(tokens, feature, lines, file, UNKNOWN)
    local = tf.where(tf.equal(tokens, ""), _id(-1), known)
    first = tf.where(local[:, :1] < 0, _id(MISSING), local[:, :1])
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
    absent = tf.where(tf.equal(values, ""), _id(MISSING), _id(UNKNOWN))
    result = []
    for part, size in _TIME_PARTS.items():
        local = tf.where(valid, parts[part] + RESERVED_IDS, absent)
        result.append((local[:, None], size))
    return result


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
    for column, feature in spec.feature_by_column.items():
        if isinstance(feature, Numeric) and feature.is_dense:
            dense.append(column)
        elif isinstance(feature, Numeric):
            fields.append((column, "numeric", bucket_count(feature), 1, feature.role))
        elif isinstance(feature, Categorical) and feature.transform == "hash":
            fields.append((column, "categorical", int(feature.buckets or 0), 1, feature.role))
        elif isinstance(feature, Categorical | Multivalent):
            slots = feature.max_length if isinstance(feature, Multivalent) else 1
            size = vocabulary_size(column, feature) + feature.oov_buckets - 1
            fields.append((column, feature.kind, size, slots, feature.role))
        else:
            fields += [(f"{column}_{part}", "time", size, 1, feature.role) for part, size in _TIME_PARTS.items()]
    try:
        return FeatureMap.from_sizes(fields, tuple(dense), tuple(spec.data.labels))
    except ValueError as error:
        raise InputError(f"features: {error}; lower top_k or raise min_count") from error


def _vocabulary_size(transform: tft.TFTransformOutput, column: str, feature: Categorical | Multivalent) -> int:
    values = transform.vocabulary_by_name(vocabulary_name(column))
    if list(values) == [EMPTY_VOCABULARY]:
        raise InputError(
            f"features: the vocabulary of {column} has no entry: no value occurs {feature.min_count} times in the "
            "training rows; lower min_count or remove the column"
        )
    return len(values)
