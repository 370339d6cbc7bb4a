"""The section `data.split` of a configuration: the division of rows into training, validation and test rows."""

import datetime
import re
from typing import Annotated, Any, Literal

import pydantic

from ctrpipe.transforms.log.ordering import check_format, is_after
from ctrpipe.transforms.log.section import Section

SPLITS = ("train", "validation", "test")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


def _as_written(value: object) -> Any:
    """Converts numbers and dates, which YAML parses without quotes, back to text."""
    if isinstance(value, datetime.date):
        return value.isoformat()
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


BoundaryText = Annotated[str, pydantic.BeforeValidator(_as_written)]


class SplitFiles(Section):
    """The files of each split (`data.split.by: files`).

    Example:
        data:
          header: true
          format: csv
          labels: {ctr: click}
          split:
            by: files
            files: {train: ["days/day_*.csv"], validation: [held/validation.csv], test: [held/test.csv]}
        features: [{columns: [device], kind: categorical}]
    """

    train: list[str] = pydantic.Field([], examples=[["days/day_*.csv"]])
    """Files, globs and folders of the training rows, as in `data.paths`. Empty: `data.paths` or `--data`."""
    validation: list[str] = pydantic.Field(min_length=1, examples=[["held/validation.csv"]])
    """Files, globs and folders of the validation rows."""
    test: list[str] = pydantic.Field(min_length=1, examples=[["held/test.csv"]])
    """Files, globs and folders of the test rows."""


class Split(Section):
    """The division of rows into training, validation and test rows.

    Example:
        data: {split: {by: time, column: day, validation_from: "2026-05-01", test_from: "2026-06-01"}}
    """

    by: Literal["order", "hash", "group", "time", "files"] = "order"
    """How rows are assigned to the splits. `order`: the last rows are the test rows, the rows before them the
    validation rows. `hash`: at random, by a hash of the split's seed, the file's number and the row's line number.
    `group`: at random by a hash of the split's seed and the value of `column`: the rows of one value, such as a user,
    are in one split. `time`: by the time in `column`. `files`: by the file, see `files`.
    """
    validation: float = pydantic.Field(0.1, gt=0, lt=1)
    """Share of the validation rows; with `by: group`, of the values of `column`; with `by: time`, of the time between
    the first and the last row. Not with `by: files`.
    """
    test: float = pydantic.Field(0.1, gt=0, lt=1)
    """Share of the test rows, like `validation`."""
    seed: int = pydantic.Field(1, ge=0)
    """Seed of `by: hash` and `by: group`, of the negatives that `events` draws, and of the parts that a run makes of
    rows that wait for their labels. It is not the run's `seed`: runs of several seeds have the same test rows.
    """
    column: str | None = pydantic.Field(None, examples=["day"])
    """Column of the time (`by: time`) or of the group (`by: group`). It need not be a feature. With `by: time` a row
    whose value is missing or unreadable is malformed. With `by: group` a row without a value, or with a word of
    `data.missing_values`, is drawn as by `hash`.
    """
    validation_from: BoundaryText | None = pydantic.Field(None, examples=["2026-05-01"])
    """Rows from this value on and before `test_from` are validation rows (`by: time` only)."""
    test_from: BoundaryText | None = pydantic.Field(None, examples=["2026-06-01"])
    """Rows from this value on are test rows (`by: time` only)."""
    last: str | None = pydantic.Field(None, examples=["2d", "12h", "1w"])
    """In place of `validation_from` and `test_from`: the rows of the last hours, days or weeks, up to the newest row of
    the log, are test rows, and the rows of as long a time before them validation rows (`by: time` only). Without the
    three, `validation` and `test` must be given, as shares of the time.
    """
    compare_as: Literal["auto", "number", "time", "text"] = "auto"
    """What the values of `column` are (`by: time` only). `number`: 9 is before 28. `time`: dates and moments as
    2026-05-01, with a time of day, a zone (without one they are UTC) or neither, or epochs in seconds, milliseconds,
    micro- or nanoseconds, told apart by their size. `text`: compared as text. `auto`: `number` or `time`, by the
    column's first values. A column that mixes them is an error.
    """
    time_format: str = pydantic.Field("auto", examples=["%d/%b/%Y:%H:%M:%S %z", "%Y%m%d"])
    """How times are written: see `format` of kind `time`. `auto`: the forms that `compare_as` lists, or the format of
    the column as a feature of kind `time`.
    """
    files: SplitFiles | None = None
    """The files of each split (`by: files` only)."""

    @pydantic.model_serializer(mode="wrap")
    def _with_given_shares(self, handler: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serializes explicitly set shares even if they equal the defaults, because `by: time` requires explicit
        shares.
        """
        values: dict[str, Any] = handler(self)
        if self.by == "time" and self.needs_span:
            values |= {name: getattr(self, name) for name in ("validation", "test") if name in self.model_fields_set}
        return values

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Split":
        if self.validation + self.test >= 1:
            raise ValueError("validation and test together must be below 1, or nothing is left for training")
        if (self.by == "files") != (self.files is not None):
            raise ValueError("by: files and the section files go together; give both, or neither")
        if self.by in ("time", "group"):
            if self.column is None:
                raise ValueError(f"by: {self.by} needs column")
        elif self.column is not None:
            raise ValueError(f"column applies to by: time and by: group, not to by: {self.by}")
        own = (self.validation_from, self.test_from, self.last)
        if self.by == "time":
            self._check_boundaries()
        elif own != (None, None, None) or self.compare_as != "auto" or self.time_format != "auto":
            keys = "validation_from, test_from, last, compare_as and time_format"
            raise ValueError(f"{keys} apply to by: time only, not to by: {self.by}")
        return self

    def _check_boundaries(self) -> None:
        check_format(self.time_format)
        if self.time_format != "auto" and self.compare_as in ("number", "text"):
            raise ValueError(f"time_format applies to compare_as: time, not to {self.compare_as}")
        if (self.validation_from is None) != (self.test_from is None):
            raise ValueError("validation_from and test_from go together; give both, or neither")
        if self.last is not None:
            match = _DURATION.fullmatch(self.last)
            if not match or not float(match[1]):
                raise ValueError(f"last: '{self.last}' is not a duration above 0; write 12h, 2d or 1w")
            if self.validation_from is not None:
                raise ValueError("last replaces validation_from and test_from; give one or the other")
            if self.compare_as in ("number", "text"):
                raise ValueError(f"last applies to compare_as: time, not to {self.compare_as}")
        elif self.validation_from is not None and self.test_from is not None:
            if not is_after(self.validation_from, self.test_from, self.compare_as, self.time_format):
                raise ValueError("validation_from must be before test_from")
        elif not {"validation", "test"} <= self.model_fields_set:
            raise ValueError("by: time needs validation_from and test_from, or last, or the shares validation and test")
        elif self.compare_as == "text":
            raise ValueError("compare_as: text cannot divide by shares of the time; give validation_from and test_from")

    @property
    def microseconds(self) -> int:
        """The duration `last` in microseconds; 0 without it."""
        match = _DURATION.fullmatch(self.last or "")
        return round(float(match[1]) * _HOURS[match[2]] * 3_600_000_000) if match else 0

    @property
    def needs_span(self) -> bool:
        """Whether the boundaries depend on the first and last time of the log."""
        return self.by == "time" and self.validation_from is None
