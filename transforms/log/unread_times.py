"""Finds times that no format reads in a column of an unknown log: `ctrpipe init` leaves them out and says why."""

import collections
import dataclasses
import re
import statistics
from collections.abc import Sequence

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.kinds.guess import TIME_NAME, ColumnSample, Guess
from ctrpipe.transforms.log.time_formats import MONTH_NAME, NAMES_MONTH, are_near, nearly_fitting

# A date with slashes, points or hyphens, with or without a time of the day.
_LIKE_A_TIME = re.compile(
    r"\d{1,4}[-./]\d{1,2}[-./]\d{1,4}"
    r"([ T,]+\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?( ?[AaPp]\.?[Mm]\.?)?( ?(Z|UTC|[+-]\d\d:?\d\d))?)?"
)
_CLOCK = re.compile(r"(?<!\d)\d{1,2}:[0-5]\d(?!\d)")
_YEAR = re.compile(r"(?<!\d)(19[7-9]\d|20\d\d)(?!\d)")
_DATED = re.compile(
    r"((19[7-9]\d|20\d\d)([-_./ ])(0?[1-9]|1[0-2])\3(0?[1-9]|[12]\d|3[01])"  # 2026-1-31
    r"|(0?[1-9]|[12]\d|3[01])\.? ?[^\W\d_]{3,10}\.? (19[7-9]\d|20\d\d)"  # 31. Mai 2026
    r"|(19[7-9]\d|20\d\d)年(0?[1-9]|1[0-2])月(0?[1-9]|[12]\d|3[01])日)"
    r"(?!\d)(T?[\d\W_]*)(Z|UTC|GMT|[AaPp]\.?[Mm]\.?)?"
)
_LONGEST = 40  # characters of a time
_SIGNED = re.compile(r"-?\d{1,13}(\.\d*)?", re.ASCII)
_EPOCHS = ((1e8, 2e9), (1e11, 2e12))  # usual ones, of seconds and milliseconds
_EXPONENT = re.compile(r"[1-9](\.\d+)?[eE]\+?(0?[89]|1[012])", re.ASCII)


@dataclasses.dataclass(frozen=True)
class _Form:
    """A notation of times that no format reads.

    Attributes:
        pattern: The regular expression of a whole value.
        what: What the values are.
        advice: What to write instead.
        between: The least of its numbers and the end above them; None: its values are not numbers.
        is_sure: Whether the values alone show that they are times; otherwise the column's name must match one of
            `names`.
        names: The names of columns with such times.
    """

    pattern: str
    what: str
    advice: str
    between: tuple[float, float] | None = None
    is_sure: bool = False
    names: tuple[re.Pattern[str], ...] = (TIME_NAME,)

    def has(self, value: str) -> bool:
        """Returns whether a value has this notation."""
        if not re.fullmatch(self.pattern, value, re.ASCII | re.IGNORECASE):
            return False
        return self.between is None or self.between[0] <= float(value) < self.between[1]


_A_DAY = "write days as 2026-01-31"
_SPLIT_READS = "write milliseconds, or name the column with --time, as a split reads them"
_OF_YEAR = r"(19[7-9]\d|20\d\d)"
_OF_MONTH = "(0[1-9]|1[0-2])"
_MONTH_WORD = "(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_DAY_OF_YEAR = r"(00[1-9]|0[1-9]\d|[12]\d\d|3[0-5]\d|36[0-6])"
_FORMS = (
    _Form(rf"{_OF_YEAR}-?W(0[1-9]|[1-4]\d|5[0-3])-?[1-7]", "days of ISO weeks", _A_DAY, is_sure=True),
    _Form(rf"{_OF_YEAR}-{_DAY_OF_YEAR}", "days of a year", _A_DAY, is_sure=True),
    _Form(rf"{_OF_YEAR}{_DAY_OF_YEAR}", "days of a year", _A_DAY),
    _Form(r"(\\?/)?Date\(-?\d+([+-]\d{4})?\)(\\?/)?", "milliseconds in words", "write their digits", is_sure=True),
    _Form(
        r"(an?|one|\d+) (second|minute|hour|day|week|month|year)s? ago|yesterday|today|just now",
        "times before an export",
        "write dates and times",
        is_sure=True,
    ),
    _Form(r"\d{5}(\.\d+)?", "days of a spreadsheet", _A_DAY, (36_526, 55_000)),  # 2000 to 2050
    _Form(r"\d{5}(\.0)?", "days since 1970", _A_DAY, (10_957, 23_000)),  # 2000 to 2032
    _Form(rf"([1-9]|[12]\d|3[01]){_OF_MONTH}\d\d", "days without their leading zero", "write it, as in 050126"),
    _Form(r"\d{6}", "hours since 1970", "write milliseconds", (263_000, 552_000)),  # 2000 to 2032
    _Form(r"\d{8}", "minutes since 1970", "write milliseconds", (15_780_000, 33_130_000)),
    _Form(r"\d{7}(\.\d+)?", "Julian days", _A_DAY, (2_451_544, 2_470_000)),  # 2000 to 2050
    _Form(r"[1-9]\d{14,15}", "microseconds since 1970", _SPLIT_READS, (9e14, 2e15)),
    _Form(r"[1-9]\d{17,18}", "nanoseconds since 1970", _SPLIT_READS, (9e17, 2e18)),
    _Form(r"[1-9]\d{17}", "file times of Windows", "write milliseconds since 1970", (1.25e17, 1.4e17)),
    _Form(r"[1-9]\d{17}", "ticks of .NET", "write milliseconds since 1970", (6.3e17, 6.6e17)),
)
# Spans of days: whether one returns depends on whose they are, such as the row's or a customer's first.
_PERIODS = (
    _Form(rf"{_OF_YEAR}[-_ ]?W(0?[1-9]|[1-4]\d|5[0-3])", "weeks", "", is_sure=True),
    _Form(rf"{_OF_YEAR}[-_/ ]?Q[1-4]|Q[1-4][-_/ ]?{_OF_YEAR}", "quarters", "", is_sure=True),
    _Form(rf"{_OF_YEAR}[-/]{_OF_MONTH}|{_OF_MONTH}[-/]{_OF_YEAR}", "months", "", is_sure=True),
    _Form(
        rf"{_MONTH_WORD}[-_/. ,]{{1,2}}{_OF_YEAR}|{_OF_YEAR}[-_/. ,]{{1,2}}{_MONTH_WORD}", "months", "", is_sure=True
    ),
    _Form(rf"{_OF_YEAR}{_OF_MONTH}", "months", "", names=(TIME_NAME, MONTH_NAME)),
    _Form(rf"\d\d{_OF_MONTH}", "months", "", names=(MONTH_NAME,)),  # 1012 of a time's name is a clock's
)


def unread_times(column: ColumnSample) -> Guess | None:
    """Returns the guess for a column of times that no format reads; None for other values.

    It is left out, except weeks, months and quarters, which are categories that a user is asked about.
    """
    return (
        _of_known_form(column)
        or _of_periods(column)
        or _before_1970(column)
        or _with_exponent(column)
        or _of_several_forms(column)
        or _with_faults(column)
        or _of_unknown_form(column)
    )


def _of_known_form(column: ColumnSample) -> Guess | None:
    form = _form_of(column, _FORMS)
    if form is None:
        return None
    shown = excerpt(column.present[0])
    return Guess({}, f"times as {shown}, {form.what}, which are not read: left out; {form.advice}", True)


def _of_periods(column: ColumnSample) -> Guess | None:
    form = _form_of(column, _PERIODS)
    if form is None:
        return None
    asked = f"{form.what}, as {excerpt(column.present[0])}, are categories: do they return in later rows?"
    return Guess({"kind": "categorical"}, f"{column.seen}; {asked}", True)


def _form_of(column: ColumnSample, forms: Sequence[_Form]) -> _Form | None:
    def is_named(form: _Form) -> bool:
        return form.is_sure or any(name.search(column.name) for name in form.names)

    return next((form for form in forms if is_named(form) and column.most(form.has)), None)


def _before_1970(column: ColumnSample) -> Guess | None:
    """Returns the guess for epochs some of which are negative, such as birthdays; None for other values."""
    if not TIME_NAME.search(column.name) or not column.most(lambda value: bool(_SIGNED.fullmatch(value))):
        return None
    numbers = [float(value) for value in column.present if _SIGNED.fullmatch(value)]
    usual = statistics.median(map(abs, numbers))
    if min(numbers) >= 0 or not any(least <= usual < most for least, most in _EPOCHS):
        return None
    shown = next(value for value in column.present if value.startswith("-"))
    return Guess(
        {},
        f"epochs, as {shown}, some of which are before 1970 and so not the rows' own: left out; write the age, such as "
        "days before the row, as a number",
        True,
    )


def _with_exponent(column: ColumnSample) -> Guess | None:
    """Returns the guess for epochs as 1.7e9; None for other values."""
    if not column.most(lambda value: bool(_EXPONENT.fullmatch(value))):
        return None
    written = [value for value in column.present if _EXPONENT.fullmatch(value)]
    in_range = all(1e8 <= float(value) < 2e9 or 5e11 <= float(value) < 2e12 for value in written)
    if not in_range or not (TIME_NAME.search(column.name) or are_near(column.present, column.name)):
        return None
    shown = excerpt(column.present[0])
    return Guess({}, f"times as {shown}, whose exponent is not read: left out; write {float(shown):.0f}", True)


def _of_several_forms(column: ColumnSample) -> Guess | None:
    """Returns the guess for times in several notations, which no single format matches; None for other values."""
    if not column.most(lambda value: bool(_LIKE_A_TIME.fullmatch(value))):
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


def _with_faults(column: ColumnSample) -> Guess | None:
    """Returns the guess for a column whose values are mostly times of one format; None for other columns."""
    expression = nearly_fitting(column)
    if expression is None:
        return None
    wrong = [value for value in column.present if not expression.match(value)]
    good = next(value for value in column.present if expression.match(value))
    told = (
        f"times as {excerpt(good)}, and {len(wrong) / len(column.present):.1%} of the values, as {excerpt(wrong[0])}, "
    )
    return Guess({}, f"{told}are none: left out; correct them, or write nothing where there is no time", True)


def _of_unknown_form(column: ColumnSample) -> Guess | None:
    """Returns the guess for times in an unsupported notation; None for other values."""

    def is_time(value: str) -> bool:
        said = [bool(_CLOCK.search(value)), bool(_YEAR.search(value)), bool(NAMES_MONTH.search(value))]
        return len(value) <= _LONGEST and (sum(said) > 1 or _DATED.fullmatch(value) is not None)

    if not column.most(is_time):
        return None
    told = f"times as {excerpt(column.present[0])}, whose form is not known: left out"
    return Guess(
        {}, f"{told}; for kind: time write their format, such as '%d %b %Y %H:%M', into the configuration", True
    )
