"""The section `data.impressions` of a configuration: rows that list what was shown together, as MIND's do."""

import pydantic

from ctrpipe.transforms.log.section import ColumnNames, Section


class ImpressionLists(Section):
    """A log whose rows each list the items that were shown together, with their labels, as `N55689-1 N35729-0` of MIND.

    Each item becomes a row of its own before a run reads the log: the columns of the list's row, without the list, and
    the item and its label. `data` then describes these rows: Parquet, all columns as text. `ctrpipe prepare
    impressions` does the same.

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
