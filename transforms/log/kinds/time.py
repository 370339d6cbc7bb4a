"""The kind `time`."""

from typing import ClassVar, Literal

import pydantic

from ctrpipe.transforms.log.kinds.kind import Columns
from ctrpipe.transforms.log.times import time_rules, zone_offsets

# The fields `<column>_<part>` of a column, in the order of their slots, and the number of values of each.
TIME_PARTS = {"hour": 24, "weekday": 7, "is_weekend": 2}


class Time(Columns):
    """A point in time. Gives the fields `<column>_hour`, `<column>_weekday` and `<column>_is_weekend`.

    A value that does not match the format makes its row malformed, like text in a column of numbers.

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
    """How times are written: `yymmddhh`, `yyyymmdd`, `epoch_seconds`, `epoch_milliseconds`, `iso8601` (a date, with or
    without a time and a zone), or a strptime pattern. `auto` recognises each value by its form: one of these five, or
    YYYYMMDDHH, YYYYMMDDHHMM or YYYYMMDDHHMMSS. Epochs must have 9 or 10 digits (12 or 13 in milliseconds) and be before
    2033. Eight digits are YYYYMMDD or YYMMDDHH by the training rows as a whole; a run asks where both fit. The hour of
    a date without a time is missing. Dates and timestamps of Parquet are `iso8601`.
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

    def slots(self, column: str) -> dict[str, int]:
        return {f"{column}_{part}": 1 for part in TIME_PARTS}

    def meaning(self, column: str) -> tuple[object, ...]:
        return (self.kind, self.role, self.timezone)
