"""The `events` section of a run's configuration: how an event log becomes impressions with histories."""

from typing import Annotated, Literal

import pydantic

from ctrpipe.transforms.log.section import Section
from ctrpipe.transforms.log.spec import Label

LABEL, PART, WEIGHT = "label", "part", "weight"  # columns that are added to the impressions
_SUFFIX = "_history"
_Name = Annotated[str, pydantic.Field(min_length=1)]


class EventLog(Section):
    """Converts an event log to impressions with histories.

    Each row of the log is an event of a user, an item and a time. Rows can be in any order.

    Each event becomes an impression with the user's earlier items, oldest first, in `<item>_history`, and in
    `<column>_history` for each column of `sequences`. These are lists of equal length, for features of kind `sequence`.
    Events of the same user at the same time are not in each other's history. `label` is 1 for an event, or the label of
    the log. A sampled negative is the same impression with another item and label 0. `part` is 0 for training, 1 for
    validation and 2 for test. With negative sampling, `weight` is the number of items that a row represents.

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
    """Column of the user id."""
    item: _Name = "item"
    """Column of the item id."""
    time: _Name = "time"
    """Column of the time: numbers, which are compared as numbers (epochs, YYMMDDHH), ISO 8601, or the format
    `time_format`. An event with an unreadable time is malformed.
    """
    time_format: str | None = pydantic.Field(None, examples=["%d/%b/%Y:%H:%M:%S %z"])
    """strptime pattern of the time; null: detect numbers and ISO 8601."""
    columns: list[str] = pydantic.Field([], examples=[["user", "item", "rating", "time"]])
    """Column names of a log without a header, in order."""
    label: Label | None = pydantic.Field(None, examples=["click", {"column": "rating", "threshold": 4}])
    """Column that determines whether an event is positive, in the form of `data.labels`; null: all events are positive.
    """
    item_columns: list[str] = pydantic.Field([], examples=[["category"]])
    """Columns that describe the item, such as its category. A sampled negative gets the values of its own item. Each
    item has one value per column: the value of its first event. All other columns describe the impression.
    """
    sequences: list[str] = pydantic.Field([], examples=[["category"]])
    """Columns of the earlier events that the history contains in addition to the item."""
    time_gaps: bool = False
    """Whether to add `<time>_gap_history`: for each event of the history, how long before the impression it was.

    A value is floor(log2(1 + gap)) as text, from "0" on. The gap has the unit of the times; for times that are not
    plain numbers, seconds. As a feature of kind `sequence` together with the item history, with
    `shared_with: [item, null]`, each value is a category.
    """
    history_of: Literal["positive", "all"] = "positive"
    """Which earlier events a history contains."""
    max_length: int = pydantic.Field(50, ge=1)
    """Maximum number of items in a history; the most recent ones are kept."""
    split: Literal["time", "leave_one_out"] = "time"
    """`time`: the last events of the log are the test split. `leave_one_out`: each user's last positive event is for
    test and the one before for validation; users with fewer than three positive events are used for training only.
    """
    validation: float = pydantic.Field(0.1, gt=0, lt=1)
    """Share of events for validation (only `split: time` without `validation_from`)."""
    test: float = pydantic.Field(0.1, gt=0, lt=1)
    """Share of events for test (only `split: time` without `test_from`)."""
    validation_from: str | None = pydantic.Field(None, examples=["2026-05-01"])
    """Start of validation, which ends before `test_from` (only `split: time`)."""
    test_from: str | None = pydantic.Field(None, examples=["2026-06-01"])
    """Start of test (only `split: time`)."""
    negatives: int = pydantic.Field(0, ge=0, le=1000, examples=[4])
    """Number of negatives sampled per positive event: distinct items that the user has had no event with so far."""
    test_negatives: int | None = pydantic.Field(None, ge=0, le=10_000, examples=[99])
    """Number of negatives per positive event of the test split; null: `negatives`."""
    draw: Literal["uniform", "popularity"] = "uniform"
    """Distribution of the sampled negatives: `uniform` over items, or proportional to the number of positive events of
    an item (`popularity`). With `split: time`, only items and events before the impression are used; with
    `leave_one_out`, all items and events of the log.
    """

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "EventLog":
        times = (self.validation_from, self.test_from)
        if self.split == "time" and (times[0] is None) != (times[1] is None):
            raise ValueError("validation_from and test_from go together; give both, or neither")
        if self.split == "leave_one_out" and times != (None, None):
            raise ValueError("validation_from and test_from apply to split: time only")
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
        """Number of negatives per positive event of the test split."""
        return self.negatives if self.test_negatives is None else self.test_negatives

    @property
    def has_weight(self) -> bool:
        """Whether rows have weights. They do if negatives are sampled."""
        return self.negatives > 0 or self.negatives_of_test > 0

    @property
    def gap_column(self) -> str | None:
        """Column of the time gaps of the histories; None without `time_gaps`."""
        return f"{self.time}_gap{_SUFFIX}" if self.time_gaps else None

    @property
    def made_columns(self) -> tuple[str, ...]:
        """All history columns."""
        return (*self.history_columns.values(), *([self.gap_column] if self.gap_column else []))

    @property
    def history_columns(self) -> dict[str, str]:
        """History columns by the event column that they list."""
        return {name: name + _SUFFIX for name in dict.fromkeys([self.item, *self.sequences])}
