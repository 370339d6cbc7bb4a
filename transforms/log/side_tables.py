"""The section `data.join` of a configuration: side tables, such as users and items, to join with the log."""

from typing import Annotated, Any, Literal

import pydantic

from ctrpipe.transforms.log.section import ColumnNames, Section
from ctrpipe.transforms.log.times import time_rules

_Name = Annotated[str, pydantic.Field(min_length=1)]


def _as_mapping(value: object) -> Any:
    names = [value] if isinstance(value, str) else value
    return {name: name for name in names} if isinstance(names, list) else names


_Key = Annotated[dict[_Name, _Name], pydantic.BeforeValidator(_as_mapping)]


class SideTable(Section):
    """A table with one row per key. Its columns are added to the log's rows with the same key.

    Example:
        data:
          format: parquet
          labels: {ctr: click}
          join:
            as_of: shown_at
            tables:
              - {paths: [users.csv], on: user_id, prefix: user_, duplicates: last}
              - {paths: ["prices/*.parquet"], on: {item_id: id}, time: valid_from, keep: [price]}
        features: [{kind: categorical, columns: [user_country]}, {kind: numeric, columns: [price]}]
    """

    paths: list[str] = pydantic.Field(min_length=1, examples=[["users.csv"]])
    """Files and globs of the table."""
    on: _Key = pydantic.Field(min_length=1, examples=["user_id", ["user_id", "day"], {"item_id": "id"}])
    """Key: a column, several columns, or a mapping of the log's columns to the table's. Keys are compared as text, in
    which 1.0 is 1. A row without a key has no match.
    """
    time: _Name | None = pydantic.Field(None, examples=["valid_from"])
    """Column of the time from which a row of the table holds. Each row of the log gets the newest row of its key that
    is older than the row's own time, `as_of`; a row of the same time may be its consequence, and is not taken. null:
    the table has one row per key.
    """
    time_format: str = pydantic.Field("auto", examples=["iso8601", "%d/%b/%Y:%H:%M:%S %z"])
    """How `time` is written: see `format` of kind `time`."""
    columns: ColumnNames = pydantic.Field([], examples=[["user_id", "gender", "age"]])
    """Column names of a table without a header, in order."""
    keep: list[str] = pydantic.Field([], examples=[["country", "age"]])
    """Columns that are added to the log. Empty: all but the key and the time."""
    prefix: str = pydantic.Field("", examples=["user_"])
    """What the names of the added columns begin with in the joined log."""
    duplicates: Literal["refuse", "first", "last"] = "refuse"
    """What happens to several rows of the same key, or of the same key and time: an error, or the first or the last of
    these rows is taken, in the order of the files.
    """

    @pydantic.field_validator("time_format")
    @classmethod
    def _known_format(cls, value: str) -> str:
        time_rules(value)
        return value

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "SideTable":
        if self.time in self.on.values():
            raise ValueError(f"on and time are both {self.time}; they must be different columns")
        return self


class Join(Section):
    """Left joins of the log with side tables, such as users and items, before a run reads it.

    All rows of the log are kept, in order; without a match, a table's columns are missing values. `data` then describes
    the joined log: Parquet, all columns as text. The files' formats are detected from their first rows, as in `ctrpipe
    init`. `ctrpipe prepare join` does the same join. A request to the served model must contain the joined columns,
    because the join is not part of the model.

    Example:
        data:
          format: parquet
          labels: {ctr: click}
          join: {tables: [{paths: [users.csv], on: user_id}, {paths: [items.parquet], on: item_id}]}
        features: [{kind: categorical, columns: [country, category]}]
    """

    tables: list[SideTable] = pydantic.Field(min_length=1, examples=[[{"paths": ["users.csv"], "on": "user_id"}]])
    """The tables, which are joined one after another."""
    as_of: _Name | None = pydantic.Field(None, examples=["shown_at"])
    """Column of the log with the time of the row, for tables that have a `time`: a date or moment, or an epoch. A row
    without a readable time is malformed.
    """
    time_format: str = pydantic.Field("auto", examples=["iso8601", "%d/%b/%Y:%H:%M:%S %z"])
    """How `as_of` is written: see `format` of kind `time`."""
    columns: ColumnNames = pydantic.Field([], examples=[["user_id", "item_id", "rating", "shown_at"]])
    """Column names of a log without a header, in order."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "Join":
        time_rules(self.time_format)
        timed = [table for table in self.tables if table.time]
        if timed and self.as_of is None:
            raise ValueError(f"a table has the time {timed[0].time}; name the log's column of times as as_of")
        if self.as_of is not None and not timed:
            raise ValueError("as_of needs the column of times of a table; write the table's time, or remove as_of")
        return self
