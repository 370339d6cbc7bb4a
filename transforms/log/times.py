"""Formats of times: matches times and extracts their parts.

All regular expressions and rewrites use RE2 syntax. Arrow checks the log and TensorFlow runs the served graph; both use
RE2. A value is therefore parsed identically in training and serving.
"""

import dataclasses
import datetime
import functools
import itertools
import re
import zoneinfo
from collections.abc import Iterable, Mapping, Sequence

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean

# The parts of a time. `epoch` is in seconds and excludes all other parts. The hour of a 12-hour clock is `hour` +
# `afternoon`. The last three are the zone's offset, absent if the value has none.
PARTS = ("epoch", "year", "month", "day", "hour", "afternoon", "minute", "sign", "zone_hours", "zone_minutes")
NAMED_FORMATS = ("auto", "yymmddhh", "yyyymmdd", "epoch_seconds", "epoch_milliseconds", "iso8601")

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONG_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTH, _DAY = r"(0[1-9]|1[0-2])", r"(0[1-9]|[12]\d|3[01])"
_HOUR, _MINUTE = r"([01]\d|2[0-3])", r"([0-5]\d)"
_SECOND = r"(?:[0-5]\d|60)(?:[.,]\d+)?"
_SPECIAL = r"\.+*?()[]{}^$|/-"  # characters to escape in a regular expression
_SHORTHANDS = {"%T": "%H:%M:%S", "%R": "%H:%M", "%D": "%m/%d/%y", "%F": "%Y-%m-%d"}


@dataclasses.dataclass(frozen=True)
class TimeRule:
    r"""One notation of times.

    Attributes:
        pattern: The regular expression that the whole value must match.
        parts: The replacement text for each part (a key of PARTS); `\1` is the first group of `pattern`.
    """

    pattern: str
    parts: Mapping[str, str]

    def rewriting(self, names: Sequence[str]) -> str:
        """Returns the replacement text: the given parts, separated by commas; "" for a part that the value lacks."""
        return ",".join(self.parts.get(name, "") for name in names)


def _rule(pattern: str, parts: Mapping[str, str]) -> TimeRule:
    return TimeRule(f"^{pattern}$", parts)


@functools.cache
def time_rules(time_format: str, dates: bool = False) -> tuple[TimeRule, ...]:
    """Returns the rules of a format: one of NAMED_FORMATS, or a pattern of strptime.

    Args:
        time_format: The format.
        dates: Whether eight digits are YYYYMMDD rather than YYMMDDHH where the format is `auto` (see `EightDigits`).

    Raises:
        ValueError: the format is neither, or has an unsupported directive.
    """
    if time_format == "auto":
        # 2,000,000,000 seconds is the year 2033; ten digits that begin with 20 are YYYYMMDDHH. Twelve that do are
        # YYYYMMDDHHMM, as milliseconds they would be of 1976.
        second, decimals = r"([1-9]\d{8}|1\d{9})", r"(?:\.\d*)?"
        epochs = [_rule(f"{second}{thousand}{decimals}", {"epoch": r"\1"}) for thousand in ("", r"\d{3}")]
        eight = _dates() if dates else _compact("")
        return (*eight, *_compact("20"), *_to_the_minute(), *_iso(), *epochs)
    if time_format == "yymmddhh":
        return _compact("")
    if time_format == "yyyymmdd":
        return _dates()
    if time_format == "epoch_seconds":
        return (_rule(r"(-?\d{1,11})(?:\.\d*)?", {"epoch": r"\1"}),)
    if time_format == "epoch_milliseconds":
        return (_rule(r"(-?\d{1,11})\d{3}(?:\.\d*)?", {"epoch": r"\1"}), _rule(r"\d{1,3}(?:\.\d*)?", {"epoch": "0"}))
    if time_format == "iso8601":
        return _iso()
    if "%" not in time_format:
        named = ", ".join(NAMED_FORMATS)
        raise ValueError(
            f"format '{time_format}' is none of {named}, and not a pattern such as '%Y-%m-%d %H:%M:%S'"
            f"{did_you_mean(time_format, NAMED_FORMATS)}"
        )
    return _strptime(time_format)


def _compact(century: str) -> tuple[TimeRule, ...]:
    parts = {"year": r"20\1", "month": r"\2", "day": r"\3", "hour": r"\4"}
    return (_rule(rf"{century}(\d\d){_MONTH}{_DAY}{_HOUR}", parts),)


def _dates() -> tuple[TimeRule, ...]:
    # The years that a log may have: 14102100 is no date of the year 1410 but an hour of 2014.
    return (_rule(rf"(19[7-9]\d|20\d\d){_MONTH}{_DAY}", {"year": r"\1", "month": r"\2", "day": r"\3"}),)


def _to_the_minute() -> tuple[TimeRule, ...]:
    parts = {"year": r"20\1", "month": r"\2", "day": r"\3", "hour": r"\4", "minute": r"\5"}
    return (_rule(rf"20(\d\d){_MONTH}{_DAY}{_HOUR}{_MINUTE}(?:[0-5]\d|60)?", parts),)


def _iso() -> tuple[TimeRule, ...]:
    """Returns the rules of ISO 8601's extended format: a date, with or without a time and a zone."""
    date = {"year": r"\1", "month": r"\2", "day": r"\3"}
    day = rf"(\d{{4}})-{_MONTH}-{_DAY}"
    time = rf"{day}[Tt ]{_HOUR}:{_MINUTE}(?::{_SECOND})?"
    moment = {**date, "hour": r"\4", "minute": r"\5"}
    utc = {"sign": "+", "zone_hours": "0", "zone_minutes": "0"}
    zone = {"sign": r"\6", "zone_hours": r"\7", "zone_minutes": r"\8"}
    return (
        _rule(time, moment),
        _rule(rf"{time} ?[Zz]", {**moment, **utc}),
        _rule(rf"{time} ?([+-])(\d\d):?([0-5]\d)?", {**moment, **zone}),
        _rule(day, date),
    )


# strptime ------------------------------------------------------------------------------------------------------------

_Choice = tuple[str, dict[str, str]]  # a regular expression and the parts it matches; `\?` is its group

_GROUPS: dict[str, tuple[str, str]] = {
    "%Y": ("year", r"(\d{4})"),
    "%m": ("month", r"(1[0-2]|0?[1-9])"),
    "%d": ("day", r"(3[01]|[12]\d|0?[1-9])"),
    "%H": ("hour", r"(2[0-3]|[01]\d|\d)"),
    "%M": ("minute", r"([0-5]\d|\d)"),
}
_PASSED_OVER = {
    "%S": r"(?:[0-5]\d|60|\d)",
    "%f": r"\d{1,9}",
    "%a": "(?i:mon|tue|wed|thu|fri|sat|sun)",
    "%A": "(?i:monday|tuesday|wednesday|thursday|friday|saturday|sunday)",
    "%%": "%",
}
# Python's str(datetime) and Parquet's timestamps as text leave out the fraction of a whole second.
_FRACTION, _OR_NONE = ".%f", r"(?:\.\d{1,9})?"


def _strptime(time_format: str) -> tuple[TimeRule, ...]:
    """Returns the rules of a strptime pattern: one rule for each combination of the choices of its directives."""
    pieces = [_choices(piece) for piece in _pieces(time_format)]
    rules = []
    for chosen in itertools.product(*pieces):
        groups, parts, pattern = 0, dict[str, str](), ""
        for expression, says in chosen:
            for part, value in says.items():
                if part in parts:
                    raise ValueError(f"format '{time_format}' says the {part} twice")
                groups += r"\?" in value
                parts[part] = value.replace(r"\?", f"\\{groups}")
            pattern += expression
        rules.append(_rule(pattern, parts))
        missing = [part for part in ("year", "month", "day") if part not in parts]
        if missing:
            raise ValueError(f"format '{time_format}' does not say the {' and the '.join(missing)}")
    return tuple(rules)


def _pieces(time_format: str) -> list[str]:
    for short, long in _SHORTHANDS.items():
        time_format = time_format.replace(short, long)
    pieces, place = [], 0
    while place < len(time_format):
        size = 2 if time_format[place] == "%" else 1
        if time_format.startswith(_FRACTION, place):
            size = len(_FRACTION)
        pieces.append(time_format[place : place + size])
        place += size
    return pieces


def _choices(piece: str) -> list[_Choice]:
    r"""Returns the alternatives for parsing one directive or character of a pattern; `\?` refers to its group."""
    if piece == _FRACTION:
        return [(_OR_NONE, {})]
    if not piece.startswith("%"):
        return [(f"\\{piece}" if piece in _SPECIAL else piece, {})]
    if piece in _PASSED_OVER:
        return [(_PASSED_OVER[piece], {})]
    if piece in _GROUPS:
        part, expression = _GROUPS[piece]
        return [(expression, {part: r"\?"})]
    if piece == "%y":  # POSIX: 69 is 1969, 68 is 2068
        return [(r"([0-5]\d|6[0-8])", {"year": r"20\?"}), (r"(69|[7-9]\d)", {"year": r"19\?"})]
    if piece in ("%b", "%B"):
        names = _MONTHS if piece == "%b" else _LONG_MONTHS
        return [(f"(?i:{name})", {"month": str(number)}) for number, name in enumerate(names, 1)]
    if piece == "%I":
        return [("12", {"hour": "0"}), (r"(1[01]|0?[1-9])", {"hour": r"\?"})]
    if piece == "%p":
        return [("(?i:am)", {"afternoon": "0"}), ("(?i:pm)", {"afternoon": "12"})]
    if piece == "%z":
        offset = {"sign": r"\?", "zone_hours": r"\?", "zone_minutes": r"\?"}
        return [("[Zz]", {"sign": "+", "zone_hours": "0", "zone_minutes": "0"}), (r"([+-])(\d\d):?([0-5]\d)", offset)]
    read = " ".join(sorted([*_GROUPS, *_PASSED_OVER, *_SHORTHANDS, "%y", "%b", "%B", "%I", "%p", "%z"]))
    raise ValueError(f"format: {piece} cannot be read; what can: {read}")


def parts_of(time_format: str, dates: bool = False) -> tuple[str, ...]:
    """Returns the parts that times of a format can have, in the order of PARTS. `dates`: see `time_rules`."""
    said = set().union(*(rule.parts for rule in time_rules(time_format, dates)))
    return tuple(part for part in PARTS if part in said)


def time_pattern(time_format: str, dates: bool | None = None) -> str:
    """Returns a regular expression that matches exactly the times of a format.

    Args:
        time_format: The format.
        dates: See `time_rules`; None: eight digits of `auto` may be either.
    """
    meanings = (False, True) if dates is None else (dates,)
    rules = dict.fromkeys(rule.pattern for meaning in meanings for rule in time_rules(time_format, meaning))
    return "|".join(rules)


@dataclasses.dataclass(frozen=True)
class EightDigits:
    """The possible forms of a column's eight-digit times, as far as the column has been read.

    20120315 may be 2012-03-15, or 15 o'clock on 2020-12-03. A single value does not determine the form. The column does
    if one of its values is not an hour (20120331) or not a date (14102100).

    Attributes:
        example: One of the values; "" if there is none.
        no_hour: A value that is not YYMMDDHH; "" if there is none.
        no_date: A value that is not YYYYMMDD; "" if there is none.
        no_day_first: A value that is not DDMMYYYY in the years that make it also YYMMDDHH; "" if there is none.
            15032021 is also 21 o'clock on 2015-03-20.
        of_other_day: A value whose first two digits differ from `example`, so DDMMYYYY would mean several days.
    """

    example: str = ""
    no_hour: str = ""
    no_date: str = ""
    no_day_first: str = ""
    of_other_day: str = ""

    @classmethod
    def among(cls, texts: Iterable[str]) -> "EightDigits":
        """Returns the possible forms of the eight-digit times among texts."""
        matching = [text for text in texts if len(text) == 8 and text.isascii() and text.isdigit()]
        hour, date = (re.compile(time_pattern(name)) for name in ("yymmddhh", "yyyymmdd"))
        no_hour = next((text for text in matching if not hour.match(text) and date.match(text)), "")
        no_date = next((text for text in matching if not date.match(text) and hour.match(text)), "")
        example = matching[0] if matching else ""
        no_day_first = next((text for text in matching if not _DAY_FIRST.match(text)), "")
        return cls(example, no_hour, no_date, no_day_first, _of_other_day(example, matching))

    def __or__(self, other: "EightDigits") -> "EightDigits":
        if not self.example:
            return other
        of_other_day = self.of_other_day or _of_other_day(self.example, (other.example, other.of_other_day))
        names = ("example", "no_hour", "no_date", "no_day_first")
        examples = {name: getattr(self, name) or getattr(other, name) for name in names}
        return EightDigits(**examples, of_other_day=of_other_day)

    @property
    def may_be_day_first(self) -> bool:
        """Whether the values may be DDMMYYYY with several days. As YYMMDDHH, they would all be the 20th, which is
        unlikely.
        """
        return bool(self.of_other_day) and not self.no_day_first

    @property
    def are_told(self) -> bool:
        """Whether only one form is possible for the values read so far."""
        return not self.example or (bool(self.no_hour) != bool(self.no_date) and not self.may_be_day_first)

    def are_dates(self, column: str) -> bool:
        """Returns whether the values are YYYYMMDD instead of YYMMDDHH.

        Raises:
            InputError: both forms are possible, or the values have different forms.
        """
        if self.no_hour and self.no_date:
            raise InputError(
                f"{column}: {self.no_hour} can only be YYYYMMDD, {self.no_date} only YYMMDDHH; write all times of the "
                "column in one form"
            )
        if self.may_be_day_first:
            raise InputError(
                f"{column}: its times of eight digits, as {self.example}, can be DDMMYYYY and YYMMDDHH; set the format "
                "of the times to '%d%m%Y' or yymmddhh"
            )
        if not self.are_told:
            raise InputError(
                f"{column}: its times of eight digits, as {self.example}, can be YYYYMMDD and YYMMDDHH; set the format "
                "of the times to yyyymmdd or yymmddhh"
            )
        return bool(self.no_hour)


_DAY_FIRST = re.compile(rf"{_DAY}{_MONTH}20{_HOUR}$")


def _of_other_day(example: str, texts: Iterable[str]) -> str:
    return next((text for text in texts if text and text[:2] != example[:2]), "")


# Zones ---------------------------------------------------------------------------------------------------------------

_FIRST_YEAR, _LAST_YEAR = 1970, 2100


@functools.cache
def zone_offsets(zone: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the times at which a zone's UTC offset changes, in epoch seconds, and the new offsets, in seconds.

    The first time is the beginning of 1970; its offset also applies to earlier times. After 2099 the last offset
    applies.

    Raises:
        ValueError: there is no such zone.
    """
    try:
        rules = zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(f"timezone '{zone}' is unknown; write it like 'Europe/Berlin' or 'UTC'") from error

    def offset(moment: int) -> int:
        of_zone = datetime.datetime.fromtimestamp(moment, rules).utcoffset()
        return int(of_zone.total_seconds()) if of_zone else 0

    days = [
        int(datetime.datetime(year, month, day, tzinfo=datetime.UTC).timestamp())
        for year in range(_FIRST_YEAR, _LAST_YEAR)
        for month in range(1, 13)
        for day in (1, 11, 21)  # a zone may change its offset twice within a month
    ]
    starts, offsets = [days[0]], [offset(days[0])]
    for first, last in itertools.pairwise(days):
        while offsets[-1] != offset(last):
            low, high = first, last  # the offset at `low` is the one before the change
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == offsets[-1] else (low, middle)
            starts.append(high)
            offsets.append(offset(high))
            first = high
    return tuple(starts), tuple(offsets)
