"""Converts the times of a log to seconds since 1970, by the rules of `times`."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.times import PARTS, EightDigits, TimeRule, time_rules


def epoch_seconds(texts: pa.Array, time_format: str, dates: bool = False) -> np.ndarray:
    """Returns times as seconds since 1970, float64 `[N]`; NaN for missing or invalid times.

    Times are read to the minute, epochs to the second. Times without a zone are UTC.

    Args:
        texts: The times, binary or strings `[N]`.
        time_format: A format of `times.time_rules`.
        dates: See `times.time_rules`.
    """
    distinct = texts.cast(pa.binary()).dictionary_encode()
    moments = np.full(len(distinct.dictionary) + 1, np.nan)  # the last entry is for missing times
    for rule in time_rules(time_format, dates):
        matches = pc.match_substring_regex(distinct.dictionary, rule.pattern).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(matches & np.isnan(moments[:-1]))
        if len(places):
            moments[places] = _seconds(distinct.dictionary.take(pa.array(places)), rule)
    seconds: np.ndarray = moments[distinct.indices.fill_null(len(moments) - 1).to_numpy(zero_copy_only=False)]
    return seconds


def seconds_of_column(texts: pa.Array, time_format: str) -> np.ndarray:
    """Returns a column's times as `epoch_seconds` does. The form of eight digits is inferred from the whole column.

    Args:
        texts: All times of the column, binary or strings `[N]`.
        time_format: A format of `times.time_rules`.
    """
    digits = eight_digits(texts) if time_format == "auto" else EightDigits()
    return epoch_seconds(texts, time_format, bool(digits.no_hour) and not digits.no_date)


def eight_digits(texts: pa.Array) -> EightDigits:
    """Returns the possible forms of the times of eight digits among binary values; a dictionary array is faster."""
    distinct = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    words = distinct.dictionary.cast(pa.binary())
    matching = words.filter(pc.match_substring_regex(words, r"^\d{8}$"))
    return EightDigits.among(word.decode() for word in matching.to_pylist())


def _seconds(texts: pa.Array, rule: TimeRule) -> np.ndarray:
    """Returns the seconds of times that match a rule, float64 `[N]`."""
    written = pc.replace_substring_regex(texts, rule.pattern, rule.rewriting(PARTS)).cast(pa.string())
    flat = pc.split_pattern(written, ",").flatten()
    parts = dict(zip(PARTS, flat.to_numpy(zero_copy_only=False).reshape(-1, len(PARTS)).T, strict=True))
    sign = np.where(parts.pop("sign") == "-", -1, 1)
    numbers = {name: np.where(values == "", "0", values).astype(np.int64) for name, values in parts.items()}
    if "epoch" in rule.parts:
        return numbers["epoch"].astype(np.float64)
    months = (numbers["year"] - 1970).astype("datetime64[Y]").astype("datetime64[M]") + (numbers["month"] - 1)
    days = months.astype("datetime64[D]").astype(np.int64) + numbers["day"] - 1
    zone = sign * (numbers["zone_hours"] * 60 + numbers["zone_minutes"])
    minutes: np.ndarray = (days * 24 + numbers["hour"] + numbers["afternoon"]) * 60 + numbers["minute"] - zone
    return minutes * 60.0
