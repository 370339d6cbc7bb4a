"""The section `data.impressions` of a configuration: rows that list the items shown together, as in MIND."""

import pydantic

from ctrpipe.transforms.log.section import ColumnNames, Section


class ImpressionLists(Section):
    """A log whose rows list the items shown together, with their labels, such as MIND's `N55689-1 N35729-0`.

    Before a run reads the log, each item becomes its own row: the row's other columns, the item and its label. `data`
    then describes these rows: Parquet, all columns as text. `ctrpipe prepare impressions` does the same.

    Example:
        data:
          format: parquet
          labels: {ctr: label}
          impressions: {column: impressions, columns: [id, user, time, history, impressions]}
        features:
          - {columns: [user, item], kind: categorical}
          - {columns: [history], kind: sequence, separator: " ", shared_with: item, max_length: 50}
    """

    column: str = pydantic.Field("impressions", min_length=1)
    """Column of the lists."""
    separator: str = pydantic.Field(" ", min_length=1)
    """What stands between two items of a list."""
    label_separator: str = pydantic.Field("-", min_length=1)
    """What stands between an item and its label: its last occurrence counts. An item without it has no label, as in the
    lists of a test set.
    """
    item: str = pydantic.Field("item", min_length=1)
    """Column of the item, which the rows get."""
    label: str = pydantic.Field("label", min_length=1)
    """Column of the label, which the rows get."""
    columns: ColumnNames = pydantic.Field([], examples=[["id", "user", "time", "history", "impressions"]])
    """Column names of a log without a header, in order."""

    @pydantic.model_validator(mode="after")
    def _consistent(self) -> "ImpressionLists":
        if self.item == self.label:
            raise ValueError(f"item and label are both {self.item}; they must be different columns")
        return self
