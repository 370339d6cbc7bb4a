"""The kind `time`."""

import re
from collections.abc import Iterable
from typing import ClassVar, Literal

import pydantic

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.kinds.guess import ColumnSample, Guess
from ctrpipe.transforms.log.kinds.kind import Columns
from ctrpipe.transforms.log.time_formats import USUAL, are_unnamed_epochs, formats_of
from ctrpipe.transforms.log.times import EightDigits, time_rules, zone_offsets
from ctrpipe.transforms.log.unread_times import unread_times

# The fields `<column>_<part>` of a column, in the order of their slots, and the number of values of each.
TIME_PARTS = {"hour": 24, "weekday": 7, "is_weekend": 2}
_ZONE = re.compile(r":\d\d(?:[.,]\d+)?\s?(Z|[+-]\d\d(?::?\d\d)?)$")  # behind a time of the day


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
        if column.is_list or not column.present:
            return None
        formats = formats_of(column)
        if formats is None:
            return unread_times(column)
        time_format, *others = formats
        comment = f"times as {excerpt(column.present[0])}, {column.seen}"
        unsure = bool(others) and not time_format.startswith(USUAL)
        asked = " or ".join(map(repr, others))
        comment += f"; or format: {asked}, which fits as well?" if unsure else ""
        if are_unnamed_epochs(column):
            unsure, comment = True, f"{comment}; its name is no time's: are they, or ids or amounts?"
        if asked := _asked_of_zones(column.present):
            unsure, comment = True, f"{comment}; {asked}"
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


def _asked_of_zones(values: Iterable[str]) -> str:
    """Returns the question of which place the hours of times of several zones are; "" for times of one zone."""
    by_offset: dict[str, str] = {}
    for zone in sorted({match[1] for value in values if (match := _ZONE.search(value))}):
        by_offset.setdefault(_offset(zone), zone)
    zones = list(by_offset.values())
    if len(zones) < 2:
        return ""
    return (
        f"{len(zones)} zones, as {zones[0]} and {zones[1]}, and hours and weekdays are those of UTC: name the zone of "
        "one place (timezone), or write the hour of each place as a column?"
    )


def _offset(zone: str) -> str:
    """Returns one notation of a zone: +0000 for Z, +00:00 and -00."""
    offset = zone.replace(":", "").replace("Z", "+").ljust(5, "0")
    return offset if offset.strip("-0") else "+0000"
