"""Packs raw columns into tensors, in one TensorFlow Transform graph for training and serving."""

import dataclasses
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_transform as tft

from ctrpipe.common.errors import InputError
from ctrpipe.models.base.feature_map import MAX_EXPONENT, MISSING_SIGNIFICAND, RESERVED_IDS, FeatureMap
from ctrpipe.transforms.features.learned import Learned
from ctrpipe.transforms.features.vocabularies import Vocabularies, vocabulary_sizes
from ctrpipe.transforms.log.kinds.categorical import Categorical
from ctrpipe.transforms.log.kinds.multivalent import Multivalent
from ctrpipe.transforms.log.kinds.numeric import Numeric
from ctrpipe.transforms.log.kinds.sequence import ItemSequence
from ctrpipe.transforms.log.kinds.text import Text
from ctrpipe.transforms.log.kinds.time import TIME_PARTS, Time
from ctrpipe.transforms.log.spec import WHOLE_NUMBER, Feature, LogSpec
from ctrpipe.transforms.log.times import said_parts, time_pattern, time_rules, zone_offsets
from ctrpipe.transforms.text.ragged import without_empty
from ctrpipe.transforms.text.tokenize import text_map, tokenize

# Features whose columns may have a vocabulary.
Vocabulary = Categorical | Multivalent | ItemSequence | Text

# Name prefixes of the outputs that contain the columns of one side only.
CANDIDATE, CONTEXT = "candidate_", "context_"
UNKNOWN, MISSING = 0, 1  # a field's local ids before its vocabulary; see ctrpipe.models.base.feature_map
# ln(2^32) = 22.2; larger numbers share the last bucket.
_MAX_LOG = 22
_BARS_SMALL = 3  # 0, 1 and 2 keep their value
_BARS_BUCKETS = _BARS_SMALL + _MAX_LOG * _MAX_LOG
LOG_BUCKETS = 2 + _MAX_LOG + 1
BARS_BUCKETS = 1 + _BARS_BUCKETS
# Hundredths of the range, and a bucket for the maximum (BERT4CTR, section 3.2).
MIN_MAX_BUCKETS = 101
# The smallest normal float32. Whether subnormal numbers are flushed to 0 depends on a thread's settings.
_SMALLEST = float(np.finfo(np.float32).smallest_normal)
_DAY_MINUTES = 24 * 60
_DAYS_TO_1970 = 719_468  # days from 0000-03-01 to 1970-01-01


def preprocessing_fn(inputs: dict[str, tf.Tensor], learned: Learned) -> dict[str, tf.Tensor]:
    """Packs raw columns. TensorFlow Transform traces this function for training and serving.

    Args:
        inputs: [N] tensors, float32 or string. A missing value is NaN or "".
        learned: The vocabularies and numbers learned from the training rows, and the description of the log.

    Returns:
        `label` float32 [N, tasks]. With fields, `ids` int64 [N, S]. With dense features, `dense` float32 [N, D]. With a
        text, `tokens` and `segments` int64 [N, T]. With `raw_numbers`, `numbers` int64 [N, 2 M]. If the log has columns
        of the candidate, also `candidate_ids` and `context_ids`, and likewise for `dense` and `numbers`: the slots that
        depend only on the columns of the candidate or of the context.
    """
    outputs = _pack(inputs, learned)
    labels = [inputs[name] for name in learned.spec.label_columns]
    outputs["label"] = tf.stack(labels, axis=1)
    return outputs


def _pack(inputs: dict[str, tf.Tensor], learned: Learned) -> dict[str, tf.Tensor]:
    """Returns the outputs of `preprocessing_fn`, without the label."""
    analyzed, vocabularies = learned.numbers(), learned.write_vocabularies()
    fields: list[_Fields] = []
    dense: list[tuple[str, tf.Tensor]] = []
    outputs: dict[str, tf.Tensor] = {}
    # The columns of a feature share their operations: the number of operations determines the latency of a request.
    side_of = _sides(learned.spec)
    for side, feature in _features_by_side(learned.spec, side_of):
        columns = _plain_values([inputs[column] for column in feature.columns], feature, learned.spec)
        found: list[_Fields] = []
        figures = [analyzed[column] for column in feature.columns if column in analyzed]
        if isinstance(feature, Numeric) and feature.is_dense:
            normalize = standardize if feature.transform == "standardize" else quantile_normalize
            dense.append((side, normalize(tf.stack(columns, axis=1), tf.constant(np.stack(figures)))))
        elif isinstance(feature, Numeric):
            found = [_numeric(columns, feature, figures)]
        elif isinstance(feature, Categorical):
            found = [_categorical(columns, feature, vocabularies)]
        elif isinstance(feature, Multivalent):
            found = [
                _multivalent(values, column, feature, vocabularies)
                for column, values in zip(feature.columns, columns, strict=True)
            ]
        elif isinstance(feature, ItemSequence):
            found = [
                _sequence(values, column, feature, learned.spec, vocabularies)
                for column, values in zip(feature.columns, columns, strict=True)
            ]
        elif isinstance(feature, Text):
            tensors = tokenize(columns, feature, vocabularies.files.get(feature.columns[0]))
            outputs |= {
                name: tf.cast(each, tf.int64) for name, each in zip(("tokens", "segments"), tensors, strict=True)
            }
        else:
            found = [_Fields(time_ids(column, feature), _ids(TIME_PARTS.values()), 1) for column in columns]
        fields += [dataclasses.replace(some, side=side) for some in found]
    for prefix, sides in _outputs_by_side(learned.spec).items():
        if any(some.side in sides for some in fields):
            outputs[f"{prefix}ids"] = _shared_ids(fields, sides)
        if some_dense := [values for side, values in dense if side in sides]:
            outputs[f"{prefix}dense"] = tf.concat(some_dense, axis=1)
        if written := [name for name in learned.spec.written_columns if side_of[name] in sides]:
            numbers = _known_numbers([inputs[column] for column in written], learned.spec.missing_numbers)
            outputs[f"{prefix}numbers"] = written_numbers(tf.stack(numbers, axis=1))
    return outputs


def _sides(spec: LogSpec) -> dict[str, str]:
    """Returns the side of each column: CANDIDATE or CONTEXT."""
    of_candidate = set(spec.candidate_columns)
    return {name: CANDIDATE if name in of_candidate else CONTEXT for name in spec.feature_columns}


def _features_by_side(spec: LogSpec, side_of: Mapping[str, str]) -> list[tuple[str, Feature]]:
    """Returns the features in order, each with its side. A feature with columns of both sides is split by side."""
    found: list[tuple[str, Feature]] = []
    for feature in spec.features:
        for side, columns in itertools.groupby(feature.columns, side_of.__getitem__):
            names = list(columns)
            found.append((side, feature if names == feature.columns else feature.model_copy(update={"columns": names})))
    return found


def _outputs_by_side(spec: LogSpec) -> dict[str, tuple[str, ...]]:
    """Maps the name prefix of each group of outputs to the sides whose columns it contains."""
    both: dict[str, tuple[str, ...]] = {"": (CONTEXT, CANDIDATE)}
    return both | {CONTEXT: (CONTEXT,), CANDIDATE: (CANDIDATE,)} if spec.candidate_columns else both


def _plain_values(columns: list[tf.Tensor], feature: Feature, spec: LogSpec) -> list[tf.Tensor]:
    """Normalises columns [N] as LogReader does for a log, because requests do not pass through the reader."""
    if isinstance(feature, Numeric):
        return _known_numbers(columns, spec.missing_numbers)
    words = spec.missing_words(feature)
    is_whole = isinstance(feature, Categorical) and feature.whole_numbers
    if not (words or is_whole):
        return columns
    texts = tf.stack(columns, axis=1)
    if words:
        texts = tf.where(tf.strings.regex_full_match(texts, "|".join(map(re.escape, words))), "", texts)
    if is_whole:
        texts = tf.strings.regex_replace(texts, WHOLE_NUMBER, r"\1", replace_global=False)
    plain: list[tf.Tensor] = tf.unstack(texts, axis=1)
    return plain


def _known_numbers(columns: list[tf.Tensor], missing: Sequence[float]) -> list[tf.Tensor]:
    """Returns columns [N] with NaN in place of the numbers that mean a missing value."""
    for number in missing:
        columns = [tf.where(tf.equal(column, number), np.float32("nan"), column) for column in columns]
    return columns


@dataclasses.dataclass(frozen=True)
class _Fields:
    """Fields with the same number of slots.

    Attributes:
        local: Ids within their field, int64 [N, fields * slots]; -1 is padding.
        sizes: Number of ids of each field, without the reserved ones, int64 [fields].
        slots: Number of slots of each field.
        columns: The fields' columns, if other fields may share their ids.
        shared_with: The column whose ids these fields share; "" for ids of their own.
        side: CANDIDATE or CONTEXT.
    """

    local: tf.Tensor
    sizes: tf.Tensor
    slots: int
    columns: Sequence[str] = ()
    shared_with: str = ""
    side: str = ""


def _shared_ids(fields: list[_Fields], sides: Sequence[str]) -> tf.Tensor:
    """Returns the ids of the sides' fields in the id space of all fields (FeatureMap.from_sizes). int64 [N, S]."""
    sizes = tf.concat([some.sizes for some in fields if not some.shared_with], axis=0) + RESERVED_IDS
    places: dict[str, int] = {}  # index of each column among those with their own ids
    slots: list[int] = []
    own: list[int] = []
    count = 0
    for some in fields:
        if not some.shared_with:
            places |= {column: count + index for index, column in enumerate(some.columns)}
            count += some.sizes.shape[0]
    count = 0
    for some in fields:
        of_fields = range(count, count + some.sizes.shape[0])
        if some.shared_with:
            own.append(places[some.shared_with])
        else:
            own += of_fields
            count = of_fields.stop
        slots += [some.slots if some.side in sides else 0] * len(of_fields)
    offsets = 1 + tf.cumsum(sizes, exclusive=True)  # id 0 is padding
    offsets = tf.gather(offsets, np.repeat(own, slots))
    local = tf.concat([some.local for some in fields if some.side in sides], axis=1)
    return tf.where(local < 0, _id(0), local + offsets)


def _id(local: int) -> tf.Tensor:
    return tf.constant(local, tf.int64)


def _ids(values: Iterable[int]) -> tf.Tensor:
    return tf.constant(list(values), tf.int64)


def bucket_count(feature: Numeric) -> int:
    """Returns the number of buckets of a numeric column that is not dense."""
    fixed = {"log_bucketize": LOG_BUCKETS, "bars_bucketize": BARS_BUCKETS, "min_max": MIN_MAX_BUCKETS}
    return feature.buckets or fixed[feature.transform]


def _numeric(columns: list[tf.Tensor], feature: Numeric, learned: list[np.ndarray]) -> _Fields:
    values, buckets = tf.stack(columns, axis=1), bucket_count(feature)
    if feature.transform == "log_bucketize":
        bucket = log_bucket(values)
    elif feature.transform == "bars_bucketize":
        bucket = bars_bucket(values)
    elif feature.transform == "min_max":
        bucket = min_max_bucket(values, tf.constant(np.stack(learned)), buckets)
    else:
        bucket = quantile_bucket(values, tf.constant(np.stack(learned)))
    local = tf.where(tf.math.is_nan(values), _id(MISSING), bucket + RESERVED_IDS)
    return _Fields(local, _ids([buckets] * len(columns)), 1)


def log_bucket(values: tf.Tensor) -> tf.Tensor:
    """Returns 0 for x < 0, 1 for 0 <= x < 1, else 2 + floor(ln x), capped (Attention-Net, section 4.2). int64 [N]."""
    large = 2 + tf.math.floor(tf.math.log(tf.maximum(values, 1.0)))
    bucket = tf.where(values >= 1, tf.minimum(large, LOG_BUCKETS - 1), tf.where(values >= 0, 1.0, 0.0))
    return tf.cast(tf.where(tf.math.is_nan(values), 0.0, bucket), tf.int64)


def bars_bucket(values: tf.Tensor) -> tf.Tensor:
    """Returns BARS' bucket plus one: floor(ln(x)^2) for x > 2, else floor(x); 0 for negative numbers. int64 [N].

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
    """Returns the place of each value, [N, C], among its column's sorted numbers, float64 [C, B]. int64 [C, N]."""
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


def written_numbers(values: tf.Tensor) -> tf.Tensor:
    """Returns the significand and exponent of each number, for [N, M] numbers. int64 [N, 2 M].

    35 is (35, 1) and -0.1234 is (-123, -1), as in BERT4CTR, section 3.2.1. The significand is rounded to three
    significant digits, ties to the even digit, without trailing zeros. Missing and infinite numbers are
    (MISSING_SIGNIFICAND, 0). Numbers with an absolute value below 1.18e-38 are (0, 0).
    """
    known = tf.math.is_finite(values)
    wide = tf.cast(tf.where(known, values, 0.0), tf.float64)
    size = tf.where(tf.abs(wide) < _SMALLEST, _wide(0.0), tf.abs(wide))
    powers = tf.constant([float(f"1e{power}") for power in range(-MAX_EXPONENT, MAX_EXPONENT + 3)], tf.float64)

    def power_of_ten(exponent: tf.Tensor) -> tf.Tensor:
        return tf.gather(powers, exponent + MAX_EXPONENT)

    place = tf.searchsorted(powers, tf.reshape(size, [-1]), "right", out_type=tf.int64)
    exponent = tf.where(size > 0, tf.reshape(place, tf.shape(size)) - 1 - MAX_EXPONENT, _id(0))
    # Powers of ten up to 10^22 are exact in float64, which preserves ties.
    scaled = size * power_of_ten(tf.maximum(2 - exponent, 0)) / power_of_ten(tf.maximum(exponent - 2, 0))
    rounded = tf.cast(tf.round(scaled), tf.int64)
    exponent += tf.cast(rounded >= 1000, tf.int64)  # 999.6 is (1, 3)
    for _ in range(3):
        rounded = tf.where(tf.equal(rounded % 10, 0), rounded // 10, rounded)
    significand = tf.where(wide < 0, -rounded, rounded)
    pairs = [tf.where(known, significand, _id(MISSING_SIGNIFICAND)), exponent]
    return tf.reshape(tf.stack(pairs, axis=2), [-1, 2 * values.shape[1]])


def _wide(value: float) -> tf.Tensor:
    return tf.constant(value, tf.float64)


def _local_ids(
    places: tf.Tensor,
    values: tf.Tensor,
    sizes: Sequence[int],
    feature: Categorical | Multivalent | ItemSequence,
    unknown: int,
) -> tf.Tensor:
    """Returns local ids [N, C]: `unknown`, then the vocabulary, then any further out-of-vocabulary ids."""
    local = tf.where(places < 0, _id(unknown), places + RESERVED_IDS)
    if feature.oov_buckets == 1:
        return local
    bucket = tf.strings.to_hash_bucket_fast(values, feature.oov_buckets)
    return tf.where((places < 0) & (bucket > 0), _ids(sizes) + RESERVED_IDS + bucket - 1, local)


def _categorical(columns: list[tf.Tensor], feature: Categorical, vocabularies: Vocabularies) -> _Fields:
    values = tf.stack(columns, axis=1)
    if feature.transform == "hash":
        buckets = int(feature.buckets or 0)
        local = tf.strings.to_hash_bucket_fast(values, buckets) + RESERVED_IDS
        sizes = [buckets] * len(columns)
    else:
        known = [vocabularies.sizes[column] for column in feature.columns]
        places = vocabularies.places(feature.columns, columns)
        local = _local_ids(places, values, known, feature, MISSING if feature.missing_rate else UNKNOWN)
        sizes = [size + feature.oov_buckets - 1 for size in known]
    return _Fields(tf.where(tf.equal(values, ""), _id(MISSING), local), _ids(sizes), 1, feature.columns)


def _multivalent(values: tf.Tensor, column: str, feature: Multivalent, vocabularies: Vocabularies) -> _Fields:
    """Returns the ids of the first max_length values of each row; a row without values begins with the missing id."""
    split = without_empty(tf.strings.split(values, feature.separator))
    tokens = split.to_tensor("", shape=[None, feature.max_length])
    size = vocabularies.sizes[column]
    known = _local_ids(vocabularies.places_of(column, tokens), tokens, [size], feature, UNKNOWN)
    local = tf.where(tf.equal(tokens, ""), _id(-1), known)
    first = tf.where(local[:, :1] < 0, _id(MISSING), local[:, :1])
    return _Fields(tf.concat([first, local[:, 1:]], axis=1), _ids([size + feature.oov_buckets - 1]), feature.max_length)


def _sequence(
    values: tf.Tensor, column: str, feature: ItemSequence, spec: LogSpec, vocabularies: Vocabularies
) -> _Fields:
    """Returns the ids of the last max_length values of each row, in order; an empty value has the missing id."""
    split = tf.strings.split(values, feature.separator)
    kept = split[:, -feature.max_length :]
    tokens = kept.to_tensor("", shape=[None, feature.max_length])
    owner = feature.owner_of(column)
    shared = feature if owner == column else spec.feature_by_column[owner]
    assert isinstance(shared, Categorical | ItemSequence)
    if isinstance(shared, Categorical):
        known = _categorical([tf.reshape(tokens, [-1])], shared.model_copy(update={"columns": [owner]}), vocabularies)
        local, sizes = tf.reshape(known.local, [-1, feature.max_length]), known.sizes
    else:
        size = vocabularies.sizes[owner]
        found = _local_ids(vocabularies.places_of(owner, tokens), tokens, [size], shared, UNKNOWN)
        local, sizes = tf.where(tf.equal(tokens, ""), _id(MISSING), found), _ids([size + shared.oov_buckets - 1])
    lengths = tf.where(tf.equal(values, ""), _id(0), tf.cast(kept.row_lengths(), tf.int64))
    is_item = tf.range(feature.max_length, dtype=tf.int64) < lengths[:, None]
    local = tf.where(is_item, local, _id(-1))
    return _Fields(local, sizes, feature.max_length, [column], "" if owner == column else owner)


def time_ids(values: tf.Tensor, feature: Time) -> tf.Tensor:
    """Returns the ids of hour, weekday (0 = Monday) and is_weekend of times; "" is missing. int64 [N, 3].

    The hour is missing if the value does not contain it, such as a date alone.
    """
    distinct, places = tf.unique(values)  # the rows of a request have few distinct times
    return tf.gather(_time_ids(distinct, feature), places)


def _time_ids(values: tf.Tensor, feature: Time) -> tf.Tensor:
    names = said_parts(feature.format)
    is_time = tf.strings.regex_full_match(values, time_pattern(feature.format))
    text = tf.where(is_time, values, "," * (len(names) - 1))
    for rule in time_rules(feature.format):
        text = tf.strings.regex_replace(text, rule.pattern, rule.rewriting(names), replace_global=False)
    found = tf.strings.split(text, ",").to_tensor("", shape=[None, len(names)])
    is_said = dict(zip(names, tf.unstack(tf.not_equal(found, ""), axis=1), strict=True))
    sign = [name == "sign" for name in names]
    numbers = tf.strings.to_number(tf.where(tf.equal(found, "") | sign, "0", found), tf.int64)
    part = dict(zip(names, tf.unstack(numbers, axis=1), strict=True))
    minutes = tf.zeros_like(values, tf.int64)
    if "year" in part:
        minutes += _days(part["year"], part["month"], part["day"]) * _DAY_MINUTES
    for name, factor in (("hour", 60), ("afternoon", 60), ("minute", 1)):
        if name in part:
            minutes += part[name] * factor
    has_zone = tf.zeros_like(is_time)
    if "sign" in part:
        offset = part["zone_hours"] * 60 + part["zone_minutes"]
        is_west = tf.equal(found[:, names.index("sign")], "-")
        minutes -= tf.where(is_west, -offset, offset)
        has_zone |= is_said["sign"]
    has_hour = is_said.get("hour", has_zone)
    if "epoch" in part:
        minutes = tf.where(is_said["epoch"], part["epoch"] // 60, minutes)
        has_zone, has_hour = has_zone | is_said["epoch"], has_hour | is_said["epoch"]
    if "sign" in part or "epoch" in part:
        minutes += tf.where(has_zone, _zone_minutes(minutes, feature.timezone), 0)
    weekday = (minutes // _DAY_MINUTES + 3) % 7  # 1970-01-01 was a Thursday
    parts = tf.stack([minutes // 60 % 24, weekday, tf.cast(weekday >= 5, tf.int64)], axis=1) + RESERVED_IDS
    absent = tf.where(tf.equal(values, ""), _id(MISSING), _id(UNKNOWN))
    known = tf.where(tf.stack([has_hour, is_time, is_time], axis=1), parts, _id(MISSING))
    return tf.where(is_time[:, None], known, absent[:, None])


def _days(year: tf.Tensor, month: tf.Tensor, day: tf.Tensor) -> tf.Tensor:
    """Returns the days from 1970-01-01 to dates of the proleptic Gregorian calendar. int64 [N]."""
    shifted = tf.where(month > 2, year, year - 1)  # years start in March: a leap day is the last day of its year
    days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400
    return days + (153 * ((month + 9) % 12) + 2) // 5 + day - 1 - _DAYS_TO_1970


def _zone_minutes(utc: tf.Tensor, zone: str) -> tf.Tensor:
    """Returns a zone's UTC offsets in minutes at UTC times, which are in minutes since 1970. int64 [N]."""
    starts, offsets = zone_offsets(zone)
    if len(starts) == 1:
        return _id(offsets[0] // 60)
    place = tf.searchsorted(_ids(starts), utc * 60, "right", out_type=tf.int64)
    return tf.gather(_ids(offsets) // 60, tf.maximum(place - 1, 0))


def feature_map(spec: LogSpec, transform: tft.TFTransformOutput) -> FeatureMap:
    """Returns the feature map of a finished transform.

    Raises:
        InputError: a vocabulary is empty, or the fields need more ids in total than int32 has.
    """
    sizes = vocabulary_sizes(transform, spec)

    def size_of(column: str, feature: Vocabulary) -> int:
        if not sizes[column]:
            raise InputError(
                f"features: the vocabulary of {column} has no entry: no value occurs {feature.min_count} times in the "
                "training rows; lower min_count or remove the column"
            )
        return sizes[column]

    return layout(spec, size_of)


def layout(spec: LogSpec, vocabulary_size: Callable[[str, Vocabulary], int]) -> FeatureMap:
    """Returns the feature map of a log whose vocabularies have the sizes `vocabulary_size(column, feature)`.

    Raises:
        InputError: the fields need more ids in total than int32 has, or the text's checkpoint cannot be read.
    """
    fields: list[tuple[Any, ...]] = []
    dense: list[str] = []
    text = None
    for column, feature in spec.feature_by_column.items():
        if isinstance(feature, Numeric) and feature.is_dense:
            dense.append(column)
        elif isinstance(feature, Numeric):
            fields.append((column, "numeric", bucket_count(feature), 1, feature.role))
        elif isinstance(feature, Categorical | Multivalent):
            slots = feature.max_length if isinstance(feature, Multivalent) else 1
            fields.append((column, feature.kind, _ids_of(column, feature, vocabulary_size), slots, feature.role))
        elif isinstance(feature, ItemSequence):
            owner = feature.owner_of(column)
            shared = spec.feature_by_column[owner]
            assert isinstance(shared, Categorical | ItemSequence)
            size = _ids_of(owner, shared, vocabulary_size)
            pooling = "mean" if owner == column and feature.pooling == "attention" else feature.pooling
            shared_with = "" if owner == column else owner
            rest = (feature.max_length, feature.role, pooling, shared_with, feature.columns[0])
            fields.append((column, "sequence", size, *rest))
        elif isinstance(feature, Text):
            if column == feature.columns[0]:
                learnt = feature.tokens == "vocabulary"
                text = text_map(feature, vocabulary_size(column, feature) if learnt else None)
        else:
            fields += [(f"{column}_{part}", "time", size, 1, feature.role) for part, size in TIME_PARTS.items()]
    try:
        numbers = tuple(spec.written_columns)
        described = FeatureMap.from_sizes(fields, tuple(dense), tuple(spec.data.labels), text, numbers)
        of_item = tuple(name for name in dense if name in spec.item_columns)
        return dataclasses.replace(described, negative_sampling=spec.data.negative_sampling, item_dense=of_item)
    except ValueError as error:
        raise InputError(f"features: {error}; lower top_k or raise min_count") from error


def _ids_of(
    column: str, feature: Categorical | Multivalent | ItemSequence, vocabulary_size: Callable[[str, Vocabulary], int]
) -> int:
    """Returns the number of ids of a column, without the reserved ones."""
    if isinstance(feature, Categorical) and feature.transform == "hash":
        return int(feature.buckets or 0)
    return vocabulary_size(column, feature) + feature.oov_buckets - 1
