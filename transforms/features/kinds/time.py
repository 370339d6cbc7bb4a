"""Times in the transform: the hour, the weekday and whether it is a weekend."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from ctrpipe.models.base.feature_map import RESERVED_IDS
from ctrpipe.transforms.features.kinds.kind import (
    MISSING,
    UNKNOWN,
    KindTransform,
    LearnedNumbers,
    VocabularySize,
    constant,
    constants,
)
from ctrpipe.transforms.features.slots import FieldSlots
from ctrpipe.transforms.features.vocabularies import Vocabularies
from ctrpipe.transforms.log.kinds.time import TIME_PARTS, Time
from ctrpipe.transforms.log.times import parts_of, time_pattern, time_rules, zone_offsets

_DAY_MINUTES = 24 * 60
_DAYS_TO_1970 = 719_468  # days from 0000-03-01 to 1970-01-01


@dataclasses.dataclass(frozen=True)
class TimeTransform(KindTransform[Time]):
    """The transform of times."""

    def tensors(
        self, columns: Mapping[str, tf.Tensor], numbers: LearnedNumbers, vocabularies: Vocabularies
    ) -> dict[str, tf.Tensor]:
        ids = [time_ids(values, self.feature, bool(numbers[name].any())) for name, values in columns.items()]
        return {"ids": tf.concat(ids, axis=1)}

    def field(self, place: FieldSlots, vocabulary_size: VocabularySize) -> tuple[Any, ...]:
        size = TIME_PARTS[place.name.removeprefix(f"{place.column}_")]
        return (place.name, "time", size, place.slots, self.feature.role)


def time_ids(values: tf.Tensor, feature: Time, dates: bool = False) -> tf.Tensor:
    """Returns the ids of the TIME_PARTS of times; "" is missing, and weekday 0 is Monday. int64 [N, 3].

    `dates`: see `time_rules`. The hour is missing if the value has none, such as a date.
    """
    distinct, places = tf.unique(values)  # the rows of a request have few distinct times
    return tf.gather(_time_ids(distinct, feature, dates), places)


def _time_ids(values: tf.Tensor, feature: Time, dates: bool) -> tf.Tensor:
    names = parts_of(feature.format, dates)
    is_time = tf.strings.regex_full_match(values, time_pattern(feature.format, dates))
    text = tf.where(is_time, values, "," * (len(names) - 1))
    for rule in time_rules(feature.format, dates):
        text = tf.strings.regex_replace(text, rule.pattern, rule.rewriting(names), replace_global=False)
    said = tf.strings.split(text, ",").to_tensor("", shape=[None, len(names)])
    is_said = dict(zip(names, tf.unstack(tf.not_equal(said, ""), axis=1), strict=True))
    sign = [name == "sign" for name in names]
    numbers = tf.strings.to_number(tf.where(tf.equal(said, "") | sign, "0", said), tf.int64)
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
        is_west = tf.equal(said[:, names.index("sign")], "-")
        minutes -= tf.where(is_west, -offset, offset)
        has_zone |= is_said["sign"]
    has_hour = is_said.get("hour", has_zone)
    if "epoch" in part:
        minutes = tf.where(is_said["epoch"], part["epoch"] // 60, minutes)
        has_zone, has_hour = has_zone | is_said["epoch"], has_hour | is_said["epoch"]
    if "sign" in part or "epoch" in part:
        minutes += tf.where(has_zone, _zone_minutes(minutes, feature.timezone), 0)
    weekday = (minutes // _DAY_MINUTES + 3) % 7  # 1970-01-01 was a Thursday
    of_part = {"hour": minutes // 60 % 24, "weekday": weekday, "is_weekend": tf.cast(weekday >= 5, tf.int64)}
    parts = tf.stack([of_part[part] for part in TIME_PARTS], axis=1) + RESERVED_IDS
    absent = tf.where(tf.equal(values, ""), constant(MISSING), constant(UNKNOWN))
    has_part = tf.stack([has_hour if part == "hour" else is_time for part in TIME_PARTS], axis=1)
    known = tf.where(has_part, parts, constant(MISSING))
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
        return constant(offsets[0] // 60)
    place = tf.searchsorted(constants(starts), utc * 60, "right", out_type=tf.int64)
    return tf.gather(constants(offsets) // 60, tf.maximum(place - 1, 0))
