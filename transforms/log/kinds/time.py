"""The kind `time`."""

from typing import Literal

import pydantic

from ctrpipe.transforms.log.kinds.kind import Columns
from ctrpipe.transforms.log.times import time_rules, zone_offsets


class Time(Columns):
    """A point in time. Gives the fields `<column>_hour`, `<column>_weekday` and `<column>_is_weekend`.

    A value that does not match the format makes its row malformed, like text in a column of numbers.

    Example:
        features:
          - {columns: [hour], kind: time}
          - {columns: [shown_at], kind: time, format: iso8601, timezone: Europe/Berlin}
          - {columns: [day], kind: time, format: "%d.%m.%Y"}
    """

    kind: Literal["time"]
    """The kind of feature."""
    format: str = pydantic.Field("auto", examples=["iso8601", "%d/%b/%Y:%H:%M:%S %z"])
    """How times are written: `yymmddhh`, `epoch_seconds`, `epoch_milliseconds`, `iso8601` (a date, with or without a
    time and a zone), or a strptime pattern. `auto` recognises each value by its form: one of these four, or YYYYMMDDHH;
    epochs must have 9 or 10 digits (12 or 13 in milliseconds) and be before 2033. The hour of a date without a time is
    missing. Dates and timestamps of Parquet are `iso8601`.
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
