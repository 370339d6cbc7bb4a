"""Finds files that are not in the order of the dates in their names, such as `log_apr.csv` before `log_jan.csv`.

Files are sorted by the numbers in their names, so 2026-05-28 and 20260528 are in order. Names of months and weekdays,
dates that begin with the day, hours as 1am and 12pm, and dates after other words are not.
"""

import itertools
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

# Year, month and day, 0 where the name has none; or all numbers of a name with an hour or a weekday.
Date: TypeAlias = tuple[int, ...]

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_LONG = "uary|ruary|ch|il|e|y|ust|tember|t|ober|ember"
_MONTH = re.compile(rf"(?<![a-z])({'|'.join(_MONTHS)})(?:{_LONG})?(?![a-z])", re.IGNORECASE)
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_DAY = re.compile(r"(?<!\d)(\d{1,2})(?!\d)")
_YEAR_LAST = re.compile(r"(?<!\d)(\d{1,2})[-_.](\d{1,2})[-_.]((?:19|20)\d\d)(?!\d)")
_YEAR_FIRST = re.compile(r"(?<!\d)((?:19|20)\d\d)[-_.]?(\d\d)[-_.]?(\d\d)(?!\d)")
_HOUR = re.compile(r"(?<![a-z\d])(1[0-2]|0?[1-9])[ _]?([ap])\.?m(?![a-z])", re.IGNORECASE)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WEEKDAY = re.compile(rf"(?<![a-z])({'|'.join(_WEEKDAYS)})(?:day|sday|nesday|rsday|urday)?(?![a-z])", re.IGNORECASE)


def dated_names(files: Sequence[str]) -> Iterator[str]:
    """Yields a warning if the files of a log are not in the order of the dates in their names.

    Args:
        files: The files in the order of the log.
    """
    names = [pathlib.PurePath(path).name for path in files]
    if len(set(names)) < 2:
        return
    readings = [dates for dates in _readings(names) if dates]
    if not readings or any(_is_sorted(dates) for dates in readings):
        return
    dates = readings[0]
    place = next(index for index in range(1, len(dates)) if dates[index] < dates[index - 1])
    yield (
        f"{names[place - 1]} is read before {names[place]}, and the dates in the names say otherwise: name the files "
        "in the order of their dates, or write dates as 2026-05-28 into the names"
    )


def _readings(names: Sequence[str]) -> list[list[Date]]:
    """Returns the dates of names, one list for each possible meaning; an empty list for an impossible one."""
    if in_hours := _read(names, _in_hours) or _read(names, _in_weekdays):
        return [in_hours]
    readings = [_read(names, reads) for reads in (_in_words, _day_first, _month_first)]
    return [*readings, _read(names, _year_first)] if _differ_before_years(names) else readings


def _read(names: Sequence[str], reads: Callable[[str], Date | None]) -> list[Date]:
    """Returns the date of each name; an empty list if a name has none, or if all dates are equal."""
    dates = [reads(name) for name in names]
    known = [date for date in dates if date is not None]
    return known if len(known) == len(dates) and len(set(known)) > 1 else []


def _is_sorted(dates: Sequence[Date]) -> bool:
    """Returns whether dates are in order. Without years, December may come before January once, as Sunday before
    Monday.
    """
    falls = sum(first > second for first, second in itertools.pairwise(dates))
    has_years = any(len(date) > 1 and date[0] for date in dates)
    return falls == 0 or (falls == 1 and not has_years and dates[-1] <= dates[0])


def _in_words(name: str) -> Date | None:
    months = _MONTH.findall(name)
    if len(months) != 1:
        return None
    year, day = _YEAR.search(name), _DAY.search(name)
    month = _MONTHS.index(months[0].lower()) + 1
    return int(year[1]) if year else 0, month, int(day[1]) if day else 0


def _in_hours(name: str) -> Date | None:
    match = _HOUR.search(name)
    if match is None:
        return None
    rest = f"{name[: match.start()]} {name[match.end() :]}"
    hour = int(match[1]) % 12 + (12 if match[2].lower() == "p" else 0)
    return (*(_in_words(rest) or _numbers(rest)), hour)


def _in_weekdays(name: str) -> Date | None:
    match = _WEEKDAY.search(name)
    if match is None or _YEAR.search(name):  # a date says more
        return None
    before, after = name[: match.start()], name[match.end() :]
    return (*_numbers(before), _WEEKDAYS.index(match[1].lower()), *_numbers(after))


def _numbers(name: str) -> Date:
    return tuple(map(int, re.findall(r"\d+", pathlib.PurePath(name).stem)))


def _differ_before_years(names: Sequence[str]) -> bool:
    """Returns whether names have different words before their dates, which files are sorted by, as east_2026-05-02 and
    west_2026-05-01.
    """
    return len({_YEAR_FIRST.split(name)[0] for name in names}) > 1


def _year_first(name: str) -> Date | None:
    match = _YEAR_FIRST.search(name)
    return _calendar(match[1], match[2], match[3]) if match else None


def _day_first(name: str) -> Date | None:
    match = _YEAR_LAST.search(name)
    return _calendar(match[3], match[2], match[1]) if match else None


def _month_first(name: str) -> Date | None:
    match = _YEAR_LAST.search(name)
    return _calendar(match[3], match[1], match[2]) if match else None


def _calendar(year: str, month: str, day: str) -> Date | None:
    is_date = 1 <= int(month) <= 12 and 1 <= int(day) <= 31
    return (int(year), int(month), int(day)) if is_date else None
