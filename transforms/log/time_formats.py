"""Finds the formats of the times in a column of an unknown log, for `ctrpipe init`."""

import re
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from ctrpipe.transforms.log.epochs import epoch_seconds
from ctrpipe.transforms.log.kinds.guess import ID_NAME, TIME_NAME, ColumnSample
from ctrpipe.transforms.log.times import time_pattern
from ctrpipe.transforms.log.words import NUMBER

# Formats that a draft tries after `auto`. Those of one row differ in the order of day, month and year.
_DATES = (
    ("%m/%d/%Y", "%d/%m/%Y"),
    ("%m-%d-%Y", "%d-%m-%Y"),
    ("%d.%m.%Y", "%m.%d.%Y"),
    ("%m/%d/%y", "%d/%m/%y", "%y/%m/%d"),
    ("%Y/%m/%d", "%Y/%d/%m"),
    ("%Y_%m_%d",),
    ("%Y-%m-%d",),  # `auto` knows those without am and pm
)
_OF_NAMED_TIMES = (("%d-%m-%y", "%m-%d-%y", "%y-%m-%d"), ("%d.%m.%y", "%m.%d.%y"))  # 1.2.3 may be a version
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")
USUAL = ("%d.%m", "%Y/%m")  # how these are written nearly everywhere: not asked for
# Forms with the month's name, which no order of day and month leaves open.
NAMES_MONTH = re.compile(r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b", re.IGNORECASE)
_OF_NAMED_MONTHS = ("%d-%b-%Y", "%d %b %Y", "%d-%b-%y", "%b %d, %Y", "%b %d %Y", "%d %B %Y", "%B %d, %Y", "%d. %B %Y")
_WHOLE_OF_MONTHS = (
    *("%a %b %d %H:%M:%S %z %Y", "%a %b %d %H:%M:%S UTC %Y", "%a %b %d %H:%M:%S %Y"),
    *(f"%a, %d %b %Y %H:%M:%S {zone}" for zone in ("%z", "GMT")),
)
_WHOLE = (
    "%d/%b/%Y:%H:%M:%S %z",
    *(f"%Y%m%dT{clock}{zone}" for clock in ("%H%M", "%H%M%S", "%H%M%S.%f") for zone in ("", "%z")),  # ISO 8601, basic
    *("%Y%m%d %H:%M", "%Y%m%d %H:%M:%S", "%Y-%m-%d %H.%M.%S", "%Y-%m-%d_%H-%M-%S"),
)
# Digits without a separator, by their number: a column of one length has no doubt where a month ends.
_OF_DIGITS = {10: "%y%m%d%H%M", 12: "%y%m%d%H%M%S"}
_OF_SIX_DIGITS = ("%d%m%y", "%m%d%y", "%y%m%d")
MONTH_NAME = re.compile(r"month|period|yymm(?![_-]?d)|(^|_)ym($|_)", re.IGNORECASE)
_BEGINS_WITH_YEAR = re.compile(r"20\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])([01]\d|2[0-3])([0-5]\d)?", re.ASCII)
_FEWEST = 20  # different numbers, that all are times by their digits: chance brings one of 200 numbers there
_EPOCH = re.compile(r"\d+(\.\d*)?", re.ASCII)
_EPOCH_NAME = re.compile(r"epoch|unix", re.IGNORECASE)
_EPOCH_SPAN = 1.25  # maximum ratio of the latest to the earliest epoch of a log
_NEARLY = 0.5  # of the values that have a format, before the others are called its faults
_LOOKED_AT = 200  # values that say which format this may be


def formats_of(column: ColumnSample) -> list[str] | None:
    """Returns the formats that almost all values of a column match, the most likely first; None if they are not
    times.
    """
    if digits := of_digits(column):
        return digits
    auto = re.compile(time_pattern("auto"))
    if column.most(lambda value: bool(auto.match(value))):
        if not all(_EPOCH.fullmatch(value) for value in column.present):
            return ["auto"]
        return ["auto"] if TIME_NAME.search(column.name) or are_near(column.present, column.name) else None
    return next(filter(None, (_fitting(column, orders) for orders in _tried(column))), None)


def are_unnamed_epochs(column: ColumnSample) -> bool:
    """Returns whether the times of a column are epochs by their digits alone: ids and amounts may have the same."""
    is_named = TIME_NAME.search(column.name) or _EPOCH_NAME.search(column.name)
    return not is_named and all(_EPOCH.fullmatch(value) for value in column.present)


def of_digits(column: ColumnSample) -> list[str] | None:
    """Returns the formats of times that are digits without a separator and begin with a year of two digits; None for
    other values.

    1402242334 may be 23:34 on 2014-02-24, or an epoch of 2014-06-08. A column decides it as a whole: of several epochs,
    one has the minute 60 or more.
    """
    size = len(column.present[0])
    written = _OF_DIGITS.get(size)
    if written is None or not column.most(lambda value: len(value) == size and value.isdecimal()):
        return None
    form, auto = re.compile(time_pattern(written)), re.compile(time_pattern("auto"))
    if not column.most(lambda value: bool(form.match(value))):
        return None
    if not TIME_NAME.search(column.name) and (ID_NAME.search(column.name) or len(column.distinct) < _FEWEST):
        return None
    if column.most(lambda value: bool(_BEGINS_WITH_YEAR.fullmatch(value))):
        return ["auto", written]
    if not column.most(lambda value: bool(auto.match(value))):
        return [written]
    epochs = "epoch_seconds" if size == 10 else "epoch_milliseconds"
    return [written, epochs] if len(column.distinct) >= _FEWEST else ["auto", written]


def _tried(column: ColumnSample) -> Iterator[tuple[str, ...]]:
    """Yields the formats that a column may have besides `auto`; those of one tuple differ in their order alone."""
    is_named = bool(TIME_NAME.search(column.name))
    if column.most(lambda value: bool(NAMES_MONTH.search(value))):
        yield from ((f"{date}{clock}",) for date in _OF_NAMED_MONTHS for clock in _CLOCKS)
        yield from ((whole,) for whole in _WHOLE_OF_MONTHS)
    else:
        for orders in (*_DATES, *_OF_NAMED_TIMES) if is_named else _DATES:
            yield from (tuple(f"{date}{clock}" for date in orders) for clock in _CLOCKS)
    yield from ((whole,) for whole in _WHOLE)
    of_six = column.most(lambda value: len(value) == 6 and value.isdecimal())
    if of_six and is_named and not MONTH_NAME.search(column.name):
        yield _OF_SIX_DIGITS


def _fitting(column: ColumnSample, orders: Sequence[str]) -> list[str] | None:
    """Returns the formats that almost all values match, those of the fewest years; None if there are none."""
    expressions = {pattern: re.compile(time_pattern(pattern)) for pattern in orders}
    fitting = {
        pattern: sum(bool(expression.match(value)) for value in column.present)
        for pattern, expression in expressions.items()
        if column.most(lambda value, expression=expression: bool(expression.match(value)))  # type: ignore[misc]
    }
    if not fitting:
        return None
    best = max(fitting.values())
    fit = {pattern: _years(column.present, pattern) for pattern, count in fitting.items() if count == best}
    return [pattern for pattern, years in fit.items() if years == min(fit.values())]


def nearly_fitting(column: ColumnSample) -> re.Pattern[str] | None:
    """Returns the expression of the format that most values of a column match, and not almost all; None if there is
    none.
    """
    sample = column.present[:: max(1, len(column.present) // _LOOKED_AT)]
    formats = ["auto", *(each for orders in _tried(column) for each in orders if orders != _OF_SIX_DIGITS)]
    expressions = [re.compile(time_pattern(each)) for each in formats]
    best = max(expressions, key=lambda expression: sum(bool(expression.match(value)) for value in sample))
    matching = [value for value in column.present if best.match(value)]
    if len(matching) < _NEARLY * len(column.present):
        return None
    are_numbers = all(_EPOCH.fullmatch(value) for value in matching)
    return None if are_numbers and not are_near(matching, column.name) else best


def _years(texts: Sequence[str], time_format: str) -> int:
    """Returns the number of distinct years that a format gives: 01/05/26 to 31/05/26 have one if the year is last."""
    seconds = epoch_seconds(pa.array(texts, pa.string()), time_format)
    return len(np.unique(seconds[~np.isnan(seconds)].astype("datetime64[s]").astype("datetime64[Y]")))


def are_near(values: Sequence[str], name: str) -> bool:
    """Returns whether numbers lie as close together as the times of a log, and the column's name does not suggest
    ids.
    """
    numbers = sorted(float(value) for value in values if NUMBER.fullmatch(value))
    is_near = numbers[0] >= 1e8 and numbers[-1] < _EPOCH_SPAN * numbers[0] and len(set(numbers)) > 2
    return is_near and not ID_NAME.search(name)
