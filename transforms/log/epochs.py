"""Converts the times of a log to seconds since 1970, by the rules of `times`."""

from collections.abc import Iterator, Mapping

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
    for rule, places in _by_rule(distinct.dictionary, time_format, dates):
        moments[places] = _seconds(distinct.dictionary.take(pa.array(places)), rule)
    seconds: np.ndarray = moments[distinct.indices.fill_null(len(moments) - 1).to_numpy(zero_copy_only=False)]
    return seconds


def outside_calendar(texts: pa.Array, time_format: str) -> pa.Array:
    """Returns the times whose day is none of their month, such as 2026-02-30, which is read as 2026-03-02.

    Args:
        texts: All different times of a column, binary, without nulls.
        time_format: A format of `times.time_rules`.
    """
    wrong = np.zeros(len(texts), bool)
    for rule, places in _by_rule(texts, time_format, _are_dates(texts, time_format)):
        numbers = _numbers(texts.take(pa.array(places)), rule)
        if "epoch" not in rule.parts:
            wrong[places] = _days(numbers).astype("datetime64[M]") != _months(numbers)
    return texts.filter(pa.array(wrong))


def seconds_of_column(texts: pa.Array, time_format: str) -> np.ndarray:
    """Returns a column's times as `epoch_seconds` does. The form of eight digits is inferred from the whole column.

    Args:
        texts: All times of the column, binary or strings `[N]`.
        time_format: A format of `times.time_rules`.
    """
    return epoch_seconds(texts, time_format, _are_dates(texts, time_format))


def _are_dates(texts: pa.Array, time_format: str) -> bool:
    """Returns whether the times of eight digits in a column are YYYYMMDD, see `times.time_rules`."""
    digits = eight_digits(texts) if time_format == "auto" else EightDigits()
    return bool(digits.no_hour) and not digits.no_date


def eight_digits(texts: pa.Array) -> EightDigits:
    """Returns the possible forms of the times of eight digits among binary values; a dictionary array is faster."""
    distinct = texts if isinstance(texts, pa.DictionaryArray) else texts.dictionary_encode()
    words = distinct.dictionary.cast(pa.binary())
    matching = words.filter(pc.match_substring_regex(words, r"^\d{8}$"))
    return EightDigits.among(word.decode() for word in matching.to_pylist())


def _by_rule(texts: pa.Array, time_format: str, dates: bool) -> Iterator[tuple[TimeRule, np.ndarray]]:
    """Yields each rule of a format with the places of the times that it is the first to match."""
    rest = np.ones(len(texts), bool)
    for rule in time_rules(time_format, dates):
        matches = pc.match_substring_regex(texts, rule.pattern).to_numpy(zero_copy_only=False)
        places = np.flatnonzero(matches & rest)
        if len(places):
            rest[places] = False
            yield rule, places


def _numbers(texts: pa.Array, rule: TimeRule) -> dict[str, np.ndarray]:
    """Returns the parts of times that match a rule, int64 `[N]` each; `sign` is 1 or -1."""
    written = pc.replace_substring_regex(texts, rule.pattern, rule.rewriting(PARTS)).cast(pa.string())
    flat = pc.split_pattern(written, ",").flatten()
    parts = dict(zip(PARTS, flat.to_numpy(zero_copy_only=False).reshape(-1, len(PARTS)).T, strict=True))
    sign = np.where(parts.pop("sign") == "-", -1, 1)
    numbers = {name: np.where(values == "", "0", values).astype(np.int64) for name, values in parts.items()}
    return {**numbers, "sign": sign}


def _months(numbers: Mapping[str, np.ndarray]) -> np.ndarray:
    years = (numbers["year"] - 1970).astype("datetime64[Y]")
    return np.asarray(years.astype("datetime64[M]") + (numbers["month"] - 1))


def _days(numbers: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.asarray(_months(numbers).astype("datetime64[D]") + (numbers["day"] - 1))


def _seconds(texts: pa.Array, rule: TimeRule) -> np.ndarray:
    """Returns the seconds of times that match a rule, float64 `[N]`."""
    numbers = _numbers(texts, rule)
    if "epoch" in rule.parts:
        return numbers["epoch"].astype(np.float64)
    days = _days(numbers).astype(np.int64)
    zone = numbers["sign"] * (numbers["zone_hours"] * 60 + numbers["zone_minutes"])
    minutes: np.ndarray = (days * 24 + numbers["hour"] + numbers["afternoon"]) * 60 + numbers["minute"] - zone
    return minutes * 60.0
