"""The kind `time`."""

import collections
import re
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pydantic

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.epochs import epoch_seconds
from ctrpipe.transforms.log.kinds.guess import ID_NAME, TIME_NAME, ColumnSample, Guess
from ctrpipe.transforms.log.kinds.kind import Columns
from ctrpipe.transforms.log.times import EightDigits, time_pattern, time_rules, zone_offsets
from ctrpipe.transforms.log.words import NUMBER

# The fields `<column>_<part>` of a column, in the order of their slots, and the number of values of each.
TIME_PARTS = {"hour": 24, "weekday": 7, "is_weekend": 2}
# Formats that a draft tries after `auto`. Those of one row differ in the order of day, month and year.
_DATES = (
    ("%m/%d/%Y", "%d/%m/%Y"),
    ("%m-%d-%Y", "%d-%m-%Y"),
    ("%d.%m.%Y", "%m.%d.%Y"),
    ("%m/%d/%y", "%d/%m/%y", "%y/%m/%d"),
    ("%Y/%m/%d", "%Y/%d/%m"),
)
_OF_NAMED_TIMES = (("%d-%m-%y", "%m-%d-%y", "%y-%m-%d"), ("%d.%m.%y", "%m.%d.%y"))  # 1.2.3 may be a version
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
_USUAL = ("%d.%m", "%Y/%m")  # how these are written nearly everywhere: not asked for
_OTHER_PATTERNS = (("%d/%b/%Y:%H:%M:%S %z",),)
# Forms with the month's name, which no order of day and month leaves open.
_NAMES_MONTH = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b", re.IGNORECASE)
_OF_NAMED_MONTHS = ("%d-%b-%Y", "%d %b %Y", "%d-%b-%y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y", "%d. %B %Y")
_WHOLE = (
    *("%a %b %d %H:%M:%S %z %Y", "%a %b %d %H:%M:%S UTC %Y", "%a %b %d %H:%M:%S %Y"),
    *(f"%a, %d %b %Y %H:%M:%S {zone}" for zone in ("%z", "GMT")),
)
_EPOCH = re.compile(r"\d+(\.\d*)?", re.ASCII)
_EXPONENT = re.compile(r"[1-9](\.\d+)?[eE]\+?(0?[89]|1[012])", re.ASCII)
_EPOCH_SPAN = 1.25  # maximum ratio of the latest to the earliest epoch of a log


# A date with slashes, points or hyphens, with or without a time of the day.
_LIKE_A_TIME = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}"
    r"([ T,]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp]\.?[Mm]\.?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?)?"
)
_CLOCK = re.compile(r"(?<!\d)\d{1,2}:[0-5]\d(?!\d)")
_YEAR = re.compile(r"(?<!\d)(19[7-9]|20)\d\d(?!\d)")
_LONGEST = 40  # characters of a time


class Time(Columns):
    """A point in time, with the fields `<column>_hour`, `<column>_weekday` and `<column>_is_weekend`.

    A value that does not match the format makes its row malformed.

    Example:
        features:
          - {columns: [hour], kind: time}
          - {columns: [shown_at], kind: time, format: iso8601, timezone: Europe/Berlin}
          - {columns: [day], kind: time, format: "%d.%m.%Y"}
    """

    usual_missing: ClassVar[bool] = True

    kind: Literal["time"]
    """The kind of feature."""
    format: str = pydantic.Field("auto", examples=["iso8601", "%d/%b/%Y:%H:%M:%S %z"])
    """How times are written: `yymmddhh`, `yyyymmdd`, `epoch_seconds`, `epoch_milliseconds`, `iso8601` (a date, with
    or without a time and a zone), or a strptime pattern. `auto` recognises each value by its form: one of these
    five, or YYYYMMDDHH, YYYYMMDDHHMM or YYYYMMDDHHMMSS. Epochs must have 9 or 10 digits (12 or 13 in milliseconds),
    with or without decimals, and be before 2033. Eight digits are YYYYMMDD or YYMMDDHH by the training rows as a
    whole; a run asks where both fit. The hour of a date without a time is missing. Dates and timestamps of Parquet
    are `iso8601`.
    """
    timezone: str = pydantic.Field("UTC", examples=["Europe/Berlin"])
    """Time zone of the hours and weekdays. Epochs and times with a zone are converted to it; times without a zone are
    used unchanged.
    """

    @pydantic.model_validator(mode="after")
    def _readable(self) -> "Time":
        time_rules(self.format)
        zone_offsets(self.timezone)
        return self

    @property
    def time_format(self) -> str | None:
        return self.format

    @classmethod
    def guess(cls, column: ColumnSample) -> Guess | None:
        if not column.is_list and _are_epochs(column, _EXPONENT):
            shown = excerpt(column.present[0])
            return Guess({}, f"times as {shown}, whose exponent is not read: left out; write {float(shown):.0f}", True)
        found = None if column.is_list else _formats_of(column)
        if found is None:
            return None if column.is_list else _of_several_forms(column) or _unread(column)
        time_format, *others = found
        comment = f"times as {excerpt(column.present[0])}, {column.seen}"
        unsure = bool(others) and not time_format.startswith(_USUAL)
        asked = " or ".join(map(repr, others))
        comment += f"; or format: {asked}, which fits as well?" if unsure else ""
        digits = EightDigits.among(column.present)
        if time_format == "auto" and digits.example:
            # A run reads more rows, but may not be asked what these rows leave open.
            time_format = "yyyymmdd" if digits.no_hour or not digits.are_told else "yymmddhh"
            unsure = not digits.are_told
            if digits.may_be_day_first:
                time_format = "%d%m%Y"
            comment += "; or format: yymmddhh, which fits as well?" if unsure else ""
            if not all(len(value) == 8 for value in column.present):
                time_format = "auto"
        return Guess({"kind": "time"} | ({} if time_format == "auto" else {"format": time_format}), comment, unsure)

    def slots(self, column: str) -> dict[str, int]:
        return {f"{column}_{part}": 1 for part in TIME_PARTS}

    def meaning(self, column: str) -> tuple[object, ...]:
        return (self.kind, self.role, self.timezone)


def _of_several_forms(column: ColumnSample) -> Guess | None:
    """Returns the guess for times in several notations, which no single format matches; None for other values."""
    if not column.present or not column.most(lambda value: bool(_LIKE_A_TIME.fullmatch(value))):
        return None
    if not TIME_NAME.search(column.name) and not column.most(lambda value: ":" in value):
        return None
    written = [re.sub(r"[A-Za-z]+", "a", re.sub(r"\d+", "9", value)) for value in column.present]
    first = dict(zip(reversed(written), reversed(column.present), strict=True))
    counts = collections.Counter(written)
    forms = [form for form, count in counts.most_common(3) if count >= 0.01 * len(column.present)]
    if len(forms) < 2:
        return None
    shown = ", ".join(excerpt(first[form]) for form in forms)
    return Guess({}, f"times of {len(counts)} forms, as {shown}: left out; write them alike in the log", True)


def _unread(column: ColumnSample) -> Guess | None:
    """Returns the guess for times in an unsupported notation; None for other values."""

    def is_time(value: str) -> bool:
        said = [bool(_CLOCK.search(value)), bool(_YEAR.search(value)), bool(_NAMES_MONTH.search(value))]
        return len(value) <= _LONGEST and sum(said) > 1

    if not column.present or not column.most(is_time):
        return None
    told = f"times as {excerpt(column.present[0])}, whose form is not known: left out"
    return Guess(
        {}, f"{told}; for kind: time write their format, such as '%d %b %Y %H:%M', into the configuration", True
    )


def _formats_of(column: ColumnSample) -> list[str] | None:
    """Returns the formats that almost all values of a column match, the most likely first; None if they are not
    times.
    """
    present = column.present
    auto = re.compile(time_pattern("auto"))
    if column.most(lambda value: bool(auto.match(value))):
        if not all(_EPOCH.fullmatch(value) for value in present):
            return ["auto"]
        return ["auto"] if TIME_NAME.search(column.name) or _are_near(column) else None
    is_named = bool(TIME_NAME.search(column.name))
    dates = (*_DATES, *_OF_NAMED_TIMES) if is_named else _DATES
    with_clocks = [tuple(f"{date}{clock}" for date in orders) for orders in dates for clock in _CLOCKS]
    if column.present and column.most(lambda value: bool(_NAMES_MONTH.search(value))):
        with_clocks = [(f"{date}{clock}",) for date in _OF_NAMED_MONTHS for clock in _CLOCKS]
        with_clocks += [(whole,) for whole in _WHOLE]
    for orders in (*with_clocks, *_OTHER_PATTERNS):
        expressions = {pattern: re.compile(time_pattern(pattern)) for pattern in orders}
        fitting = {
            pattern: sum(bool(expression.match(value)) for value in present)
            for pattern, expression in expressions.items()
            if column.most(lambda value, expression=expression: bool(expression.match(value)))  # type: ignore[misc]
        }
        if fitting:
            best = max(fitting.values())
            fit = {pattern: _years(present, pattern) for pattern, count in fitting.items() if count == best}
            return [pattern for pattern, years in fit.items() if years == min(fit.values())]
    return None


def _years(texts: Sequence[str], time_format: str) -> int:
    """Returns the number of distinct years that a format gives: 01/05/26 to 31/05/26 have one if the year is last."""
    seconds = epoch_seconds(pa.array(texts, pa.string()), time_format)
    return len(np.unique(seconds[~np.isnan(seconds)].astype("datetime64[s]").astype("datetime64[Y]")))


def _are_epochs(column: ColumnSample, written: re.Pattern[str]) -> bool:
    """Returns whether almost all values are seconds or milliseconds since 1970, all in one notation."""
    if not column.present or not column.most(lambda value: bool(written.fullmatch(value))):
        return False
    numbers = [float(value) for value in column.present if written.fullmatch(value)]
    in_range = all(1e8 <= number < 2e9 or 5e11 <= number < 2e12 for number in numbers)
    return in_range and (bool(TIME_NAME.search(column.name)) or _are_near(column))


def _are_near(column: ColumnSample) -> bool:
    """Returns whether numbers lie as close together as the times of a log, and the column's name does not suggest
    ids.
    """
    numbers = sorted(float(value) for value in column.present if NUMBER.fullmatch(value))
    are_near = numbers[0] >= 1e8 and numbers[-1] < _EPOCH_SPAN * numbers[0] and len(set(numbers)) > 2
    return are_near and not ID_NAME.search(column.name)
