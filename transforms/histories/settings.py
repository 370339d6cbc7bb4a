"""How an event log becomes impressions with histories: a part of a run's configuration."""

from typing import Annotated, Literal

import pydantic

from ctrpipe.transforms.log.spec import Label, Section

LABEL, PART, WEIGHT = "label", "part", "weight"  # columns of the impressions that the event log need not have
_SUFFIX = "_history"
_Name = Annotated[str, pydantic.Field(min_length=1)]


class EventLog(Section):
    """An event log in place of impressions: a row an event, with a user, an item and a time, in any order.

    Each event becomes an impression with the items that its user had before, oldest first: `<item>_history`, and
    `<column>_history` for each of `sequences`, lists of equal length for features of kind `sequence`. Events of the
    same user and time do not see each other. `label` is 1 for an event, or what the log says; a sampled negative is the
    same impression with another item and label 0. `part` is 0 for training, 1 for validation and 2 for the test, and
    `weight`, where negatives are sampled, how many items a row stands for.

    Example:
        events: {user: user, item: item, time: time, split: leave_one_out, negatives: 4, test_negatives: 99}
        data:
          format: parquet
          labels: {ctr: label}
          split: {by: time, column: part, validation_from: "1", test_from: "2"}
        features:
          - {columns: [user, item], kind: categorical}
          - {columns: [item_history], kind: sequence, shared_with: item, max_length: 50}
    """

    user: _Name = "user"
    """The column of the user."""
    item: _Name = "item"
    """The column of the item."""
    time: _Name = "time"
    """The column of the time: numbers, compared as such (epochs, YYMMDDHH), or ISO 8601, or what `time_format` says.
    An event whose time cannot be read is malformed.
    """
    time_format: str | None = pydantic.Field(None, examples=["%d/%b/%Y:%H:%M:%S %z"])
    """A pattern of strptime; null: numbers and ISO 8601 by their form."""
    columns: list[str] = pydantic.Field([], examples=[["user", "item", "rating", "time"]])
    """Names of the columns of a log without a header, in order."""
    label: Label | None = pydantic.Field(None, examples=["click", {"column": "rating", "threshold": 4}])
    """The column that says whether an event is a positive one, as `data.labels` has it; null: every event is."""
    item_columns: list[str] = pydantic.Field([], examples=[["category"]])
    """Columns that belong to the item, as its category: a sampled negative has those of its own item. An item has one
    value in each, that of its first event. All other columns belong to the impression.
    """
    sequences: list[str] = pydantic.Field([], examples=[["category"]])
    """Columns of the earlier events, besides the item, that the history has too."""
    time_gaps: bool = False
    """Whether `<time>_gap_history` has, place by place, how long before the impression each event was: the whole part
    of log2(1 + gap), from "0" on, the gap in the unit of the times, which is seconds where they are no plain numbers. A
    feature of kind `sequence` beside the items, `shared_with: [item, null]`, makes a category of each.
    """
    history_of: Literal["positive", "all"] = "positive"
    """Which earlier events are in a history."""
    max_length: int = pydantic.Field(50, ge=1)
    """Items of a history at most: the newest."""
    split: Literal["time", "leave_one_out"] = "time"
    """`time`: the last events of the log are the test. `leave_one_out`: each user's last positive event, and the one
    before for validation; a user with fewer than three is for training only.
    """
    validation: float = pydantic.Field(0.1, gt=0, lt=1)
    """Share of the events for validation (`time` only, without `validation_from`)."""
    test: float = pydantic.Field(0.1, gt=0, lt=1)
    """Share of the events for the test (`time` only, without `test_from`)."""
    validation_from: str | None = pydantic.Field(None, examples=["2026-05-01"])
    """Events from this time on, up to `test_from`, are for validation (`time` only)."""
    test_from: str | None = pydantic.Field(None, examples=["2026-06-01"])
    """Events from this time on are for the test (`time` only)."""
    negatives: int = pydantic.Field(0, ge=0, le=1000, examples=[4])
    """Items drawn for each positive event: different ones, none that the user had up to then."""
    test_negatives: int | None = pydantic.Field(None, ge=0, le=10_000, examples=[99])
    """The same for the test; null: `negatives`."""
    draw: Literal["uniform", "popularity"] = "uniform"
    """How negatives are drawn: each item alike, or as often as it has events. With `split: time` from the items and
    events before the impression, with `leave_one_out`, which does not cut by time, from those of the whole log.
    """

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "EventLog":
        times = (self.validation_from, self.test_from)
        if self.split == "time" and (times[0] is None) != (times[1] is None):
            raise ValueError("validation_from and test_from go together; give both, or neither")
        if self.split == "leave_one_out" and times != (None, None):
            raise ValueError("validation_from and test_from go with split: time only")
        if self.validation + self.test >= 1:
            raise ValueError("validation and test together must be below 1, or nothing is left for training")
        if self.label is None and not self.negatives:
            raise ValueError("every event would be positive; give negatives, or label, the column that says which are")
        if len({self.user, self.item, self.time}) < 3:
            raise ValueError("user, item and time must be three columns")
        if self.item in self.item_columns or self.item in self.sequences:
            raise ValueError(f"item_columns and sequences have {self.item}, which is the item itself; remove it")
        if self.gap_column in self.history_columns.values():
            raise ValueError(f"time_gaps and sequences both make {self.gap_column}; rename the column of sequences")
        return self

    @property
    def negatives_of_test(self) -> int:
        """How many negatives a positive event of the test gets."""
        return self.negatives if self.test_negatives is None else self.test_negatives

    @property
    def has_weight(self) -> bool:
        """Whether negatives are sampled, so that rows have weights."""
        return self.negatives > 0 or self.negatives_of_test > 0

    @property
    def gap_column(self) -> str | None:
        """The column of the histories' time gaps; None without them."""
        return f"{self.time}_gap{_SUFFIX}" if self.time_gaps else None

    @property
    def made_columns(self) -> tuple[str, ...]:
        """All columns of the histories."""
        return (*self.history_columns.values(), *([self.gap_column] if self.gap_column else []))

    @property
    def history_columns(self) -> dict[str, str]:
        """The columns of the histories by the column of the events that they repeat."""
        return {name: name + _SUFFIX for name in dict.fromkeys([self.item, *self.sequences])}
