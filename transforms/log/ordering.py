"""Compares a column's values as numbers, times or texts.

A split by time compares values with its boundaries, and events are sorted by time. As text, 9 comes after 28, and
2026-05-01T00:30+02:00 after 2026-05-01T00:00Z, although it is earlier.
"""

import dataclasses
import datetime
import math
from fractions import Fraction
from typing import Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.epochs import epoch_seconds, seconds_of_column
from ctrpipe.transforms.log.times import NAMED_FORMATS, time_rules
from ctrpipe.transforms.log.words import NUMBER_PATTERN, USUAL_MISSING

Kind = Literal["number", "epoch", "moment", "text"]
Value: TypeAlias = int | float | bytes
Keys: TypeAlias = np.ndarray | pa.Array  # int64 or float64 [N]; binary for texts

NUMBER = f"^{NUMBER_PATTERN}$"
_WHOLE = r"^([+-]?\d{1,18}|\d{19})$"  # fits an int64, or is 19 digits that _whole_numbers checks
_MOMENT = (
    r"^(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)"
    r"(?:[Tt ](?P<hour>[01]\d|2[0-3]):(?P<minute>[0-5]\d)(?::(?P<second>[0-5]\d|60)(?:[.,](?P<fraction>\d+))?)?"
    r" ?(?:[Zz]|UTC|(?P<sign>[+-])(?P<zone_hours>\d\d):?(?P<zone_minutes>[0-5]\d)?)?)?$"
)
_SECOND = 1_000_000  # moments are counted in microseconds
# The units of epochs: smallest and largest number, and microseconds per unit. A number of 10 digits that begins with 20
# is no epoch but YYYYMMDDHH, and one of 12 digits YYYYMMDDHHMM.
_EPOCHS = (
    (10**8, 2 * 10**9, Fraction(_SECOND)),
    (5 * 10**11, 2 * 10**12, Fraction(1_000)),
    (5 * 10**14, 2 * 10**15, Fraction(1)),
    (5 * 10**17, 2 * 10**18, Fraction(1, 1_000)),
)
_FIXED_UNITS = {"epoch_seconds": Fraction(_SECOND), "epoch_milliseconds": Fraction(1_000)}
# What is wrong with a value; 0 for nothing.
MISSING, UNREADABLE, OTHER_KIND = 1, 2, 3
NAMES: dict[str, str] = {
    "number": "a number",
    "epoch": "an epoch of seconds, ms, us or ns",
    "moment": "a date or moment",
    "text": "a text",
}
_PLURALS = {
    "number": "numbers",
    "epoch": "epochs of seconds, ms, us or ns",
    "moment": "dates or moments",
    "text": "texts",
}


@dataclasses.dataclass(frozen=True)
class Compared:
    """The values of rows as sort keys, and the fault of each: 0, MISSING, UNREADABLE or OTHER_KIND."""

    keys: Keys
    faults: np.ndarray


@dataclasses.dataclass(frozen=True)
class Boundary:
    """A boundary in the order of a column's values. Rows at or above it are behind it; with `after`, only rows above
    it.
    """

    value: Value | Fraction
    after: bool = False

    def behind(self, keys: Keys) -> np.ndarray:
        """Returns whether each key is behind the boundary, bool `[N]`."""
        if isinstance(self.value, bytes):
            return np.asarray(pc.greater_equal(keys, pa.scalar(self.value, pa.binary())))
        if keys.dtype.kind == "i":  # exact, also above 2^53
            if not math.isfinite(self.value):
                return np.full(len(keys), self.value < 0)
            least = math.floor(self.value) + 1 if self.after else math.ceil(self.value)
            return np.asarray(keys >= least)
        return np.asarray(keys > float(self.value) if self.after else keys >= float(self.value))


@dataclasses.dataclass(frozen=True)
class Ordering:
    """The comparison of the values of a column.

    Attributes:
        kind: `number`; `epoch`, numbers whose size shows that they are times; `moment`, dates and moments; or `text`.
        time_format: The format of moments (see `times.time_rules`); `auto`: ISO 8601.
        missing: Words that mean a missing value, in addition to the empty value.
        decimal: The decimal separator of numbers.
    """

    kind: Kind
    time_format: str = "auto"
    missing: tuple[bytes, ...] = ()
    decimal: str = "."

    @property
    def is_time(self) -> bool:
        """Whether keys are moments, in microseconds since 1970."""
        return self.kind in ("epoch", "moment")

    @property
    def plural(self) -> str:
        """The kind of the values, for a message."""
        own = self.kind == "moment" and self.time_format not in ("auto", "iso8601")
        return f"times as {self.time_format}" if own else _PLURALS[self.kind]

    def compare(self, values: pa.Array) -> Compared:
        """Returns the sort keys of values, binary `[N]`. The key of a value with a fault is undefined."""
        if self.kind == "text":
            absent = _absent(values, self.missing)
            return Compared(values.fill_null(b""), np.where(absent, MISSING, 0).astype(np.int8))
        distinct = values.dictionary_encode()
        words: pa.Array = distinct.dictionary
        keys, faults = self._of_words(words)
        faults[_absent(words, self.missing)] = MISSING
        places = distinct.indices.fill_null(len(words)).to_numpy(zero_copy_only=False)
        keys, faults = np.append(keys, keys.dtype.type(0)), np.append(faults, np.int8(MISSING))
        return Compared(keys[places], faults[places])

    def _of_words(self, words: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        numbers, moments = _matching(self._pointed(words), NUMBER), _matching(words, _MOMENT)
        if self.kind == "number":
            keys, good = _numbers(self._pointed(words), numbers)
            return keys, _faults(good, moments)
        if self.kind == "epoch":
            keys, good = _epochs(self._pointed(words), numbers)
            return keys, _faults(good, moments)
        if self.time_format in ("auto", "iso8601"):
            keys, good = _moments(words, moments)
            return keys, _faults(good, numbers)
        if self.time_format in _FIXED_UNITS:
            keys, good = _scaled(self._pointed(words), numbers, _FIXED_UNITS[self.time_format])
            return keys, _faults(good, moments)
        keys, good = _formatted(words, self.time_format)
        return keys, _faults(good, np.zeros(len(words), bool))

    def _pointed(self, words: pa.Array) -> pa.Array:
        return pc.replace_substring(words, b",", b".") if self.decimal == "," else words

    def boundary(self, text: str) -> Value:
        """Returns the sort key of a boundary in a configuration. A time may be ISO 8601 or an epoch.

        Raises:
            ValueError: the text cannot be compared with the column's values.
        """
        if self.kind == "text":
            return text.encode()
        forms = [Ordering("number")] if self.kind == "number" else [self, Ordering("moment"), Ordering("epoch")]
        for form in forms:
            keys = form.compare(pa.array([text.encode()], pa.binary()))
            if not keys.faults[0]:
                return keys.keys[0].item()  # type: ignore[no-any-return]
        raise ValueError(f"'{text}' is {NAMES[kind_of(text)]}")

    def shown(self, value: Value | Fraction) -> str:
        """Returns the text of a key."""
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if not self.is_time:
            return f"{float(value):.15g}" if isinstance(value, float | Fraction) else str(value)
        try:
            moment = datetime.datetime(1970, 1, 1) + datetime.timedelta(microseconds=math.floor(value))
        except OverflowError:
            return str(value)
        text = moment.isoformat()
        return text.removesuffix("T00:00:00")


def kind_of(text: str) -> Kind:
    """Returns the kind of a single value: number, moment or text."""
    return kinds_of(pa.array([text.encode()], pa.binary()))[0]


def kinds_of(values: pa.Array) -> list[Kind]:
    """Returns the kind of each value, binary `[N]` without nulls: number, epoch, moment or text."""
    numbers, moments = _matching(values, NUMBER), _matching(values, _MOMENT)
    _, epochs = _epochs(values, numbers)
    kinds: list[tuple[np.ndarray, Kind]] = [(epochs, "epoch"), (numbers, "number"), (moments, "moment")]
    return [next((kind for holds, kind in kinds if holds[row]), "text") for row in range(len(values))]


def usual_kind(values: pa.Array) -> tuple[Kind, int]:
    """Returns the kind that most values have, binary `[N]` without nulls, and the row of the first value of it."""
    kinds = kinds_of(values)
    every: tuple[Kind, ...] = ("number", "epoch", "moment", "text")
    kind = max(every, key=kinds.count)
    return kind, kinds.index(kind)


def moments_of(values: pa.Array, time_format: str) -> np.ndarray:
    """Returns a column's times in microseconds since 1970, float64 `[N]`; NaN for missing and unreadable ones.

    Args:
        values: The times, binary `[N]`.
        time_format: A format of `times.time_rules`.
    """
    present = values.filter(pc.invert(_absent(values, tuple(word.encode() for word in USUAL_MISSING))))
    kind = usual_kind(present)[0] if time_format == "auto" and len(present) else "moment"
    if kind in ("number", "text"):  # such as 2026050113, whose digits are parts of a date
        return np.asarray(seconds_of_column(values, time_format) * _SECOND)
    compared = Ordering(kind, time_format).compare(values)
    return np.where(compared.faults == 0, np.asarray(compared.keys, np.float64), np.nan)


def is_after(first: str, second: str, kind: Literal["auto", "number", "time", "text"], time_format: str) -> bool:
    """Returns whether the second of two boundaries is after the first.

    Raises:
        ValueError: a boundary is neither a number nor a time, or the two differ in kind.
    """
    if kind == "text":
        return first < second
    if kind == "number":
        orderings = [Ordering("number")]
    elif time_format != "auto":
        orderings = [Ordering("moment", time_format)]
    else:
        orderings = [Ordering("moment"), Ordering("epoch" if kind == "time" else "number")]
    for ordering in orderings:
        keys = ordering.compare(pa.array([first.encode(), second.encode()], pa.binary()))
        if not keys.faults.any():
            return bool(keys.keys[0] < keys.keys[1])
    if time_format != "auto":
        one, two = (Ordering("moment", time_format).boundary(text) for text in (first, second))
        return one < two  # type: ignore[operator]  # both are moments
    named, wanted = "a number, a date or a moment", {"number", "moment", "epoch"}
    if kind == "number":
        named, wanted = "a number", {"number", "epoch"}
    elif kind == "time":
        named, wanted = "a date or moment", {"moment", "epoch"}
    if others := [text for text in (first, second) if kind_of(text) not in wanted]:
        raise ValueError(f"'{others[0]}' is not {named}; write it so, or set compare_as: text to compare texts")
    raise ValueError(f"'{first}' and '{second}' are of different kinds; write both like the column's values")


def check_format(time_format: str) -> None:
    """Raises ValueError if a time format is not supported."""
    time_rules(time_format)


def _matching(words: pa.Array, pattern: str) -> np.ndarray:
    return np.asarray(pc.match_substring_regex(words, pattern).fill_null(False))


def _absent(words: pa.Array, missing: tuple[bytes, ...]) -> np.ndarray:
    listed = pc.is_in(words, value_set=pa.array([b"", *missing], pa.binary()))
    absent: np.ndarray = np.asarray(listed) | np.asarray(words.is_null())
    return absent


def _faults(good: np.ndarray, other: np.ndarray) -> np.ndarray:
    return np.where(good, 0, np.where(other, OTHER_KIND, UNREADABLE)).astype(np.int8)


def _texts(words: pa.Array, rows: np.ndarray) -> pa.Array:
    """Returns the given rows' words, which are ASCII, as strings."""
    return words.take(pa.array(rows)).cast(pa.string())


def _numbers(words: pa.Array, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns numbers as int64 if all are whole, otherwise as float64, and a flag for each word that is a finite
    number.
    """
    rows = np.flatnonzero(numbers)
    if np.array_equal(numbers, numbers & _matching(words, r"^[+-]?\d{1,18}$")):
        whole = np.zeros(len(words), np.int64)
        whole[rows] = np.asarray(pc.replace_substring_regex(_texts(words, rows), r"^\+", "").cast(pa.int64()))
        return whole, numbers
    keys = np.zeros(len(words))
    keys[rows] = np.asarray(pc.replace_substring_regex(_texts(words, rows), r"^\+", "").cast(pa.float64()))
    good = numbers & np.isfinite(keys)
    return np.where(good, keys, 0.0), good


def _epochs(words: pa.Array, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns epochs in microseconds since 1970, int64, and a flag for each word that is an epoch."""
    keys, good = np.zeros(len(words), np.int64), np.zeros(len(words), bool)
    rows = np.flatnonzero(numbers)
    sizes = np.asarray(pc.replace_substring_regex(_texts(words, rows), r"^\+", "").cast(pa.float64()))
    for least, most, unit in _EPOCHS:
        of_unit = np.zeros(len(words), bool)
        of_unit[rows[(sizes >= least) & (sizes < most)]] = True
        scaled, fine = _scaled(words, of_unit, unit)
        keys, good = np.where(fine, scaled, keys), good | fine
    return keys, good


def _scaled(words: pa.Array, numbers: np.ndarray, unit: Fraction) -> tuple[np.ndarray, np.ndarray]:
    """Converts numbers of a unit to microseconds, rounded down, int64; also returns a flag for each before the year
    10000.
    """
    keys = np.zeros(len(words), np.int64)
    whole = numbers & _matching(words, _WHOLE)
    rows = np.flatnonzero(whole)
    most = 253_402_300_800 * _SECOND  # the year 10000
    sizes = np.zeros(len(words))
    numeric = np.flatnonzero(numbers)
    sizes[numeric] = np.asarray(pc.replace_substring_regex(_texts(words, numeric), r"^\+", "").cast(pa.float64()))
    good = numbers & (np.abs(sizes) * float(unit) < most)
    rows = np.flatnonzero(whole & good & (np.abs(sizes) < 2**63))
    digits = np.asarray(pc.replace_substring_regex(_texts(words, rows), r"^\+", "").cast(pa.int64()))
    keys[rows] = digits * unit.numerator // unit.denominator
    others = np.flatnonzero(good & ~whole)
    keys[others] = np.floor(np.round(sizes[others] * float(unit), 3)).astype(np.int64)
    return keys, good


def _moments(words: pa.Array, moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns moments in microseconds since 1970, int64, and a flag for each word that is a valid date."""
    keys, good = np.zeros(len(words), np.int64), np.zeros(len(words), bool)
    rows = np.flatnonzero(moments)
    if not len(rows):
        return keys, good
    matches = pc.extract_regex(_texts(words, rows), _MOMENT)
    parts = {field.name: matches.field(field.name) for field in matches.type}

    def number(name: str) -> np.ndarray:
        text = parts[name]
        return np.asarray(pc.if_else(pc.equal(text, ""), "0", text).cast(pa.int64()))

    parts["fraction"] = pc.utf8_rpad(pc.utf8_slice_codeunits(parts["fraction"], 0, 6), 6, "0")
    months = (number("year") - 1970) * 12 + number("month") - 1
    days = months.astype("datetime64[M]").astype("datetime64[D]") + (number("day") - 1)
    in_calendar = (number("month") >= 1) & (number("month") <= 12) & (number("day") >= 1)
    in_calendar &= days.astype("datetime64[M]").astype(np.int64) == months
    sign = np.where(np.asarray(pc.equal(parts["sign"], "-")), -1, 1)
    minutes = (days.astype(np.int64) * 24 + number("hour")) * 60 + number("minute")
    minutes -= sign * (number("zone_hours") * 60 + number("zone_minutes"))
    keys[rows] = (minutes * 60 + number("second")) * _SECOND + number("fraction")
    good[rows] = in_calendar
    return keys, good


def _formatted(words: pa.Array, time_format: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns times of a format in microseconds since 1970, int64, and a flag for each word that matches the format."""
    if time_format in NAMED_FORMATS:
        seconds = epoch_seconds(words, time_format)
        good = np.isfinite(seconds)
        return (np.where(good, seconds, 0) * _SECOND).astype(np.int64), good
    import pandas as pd  # lazy: takes 0.4 s, and other formats do not need it

    texts = [word.decode("utf-8", "replace") for word in words.to_pylist()]
    times = pd.to_datetime(pd.Series(texts, dtype=object), format=time_format, utc=True, errors="coerce")
    good = times.notna().to_numpy()
    keys = times.to_numpy("datetime64[us]").astype(np.int64)
    return np.where(good, keys, 0), good
