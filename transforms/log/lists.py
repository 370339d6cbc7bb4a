"""Chooses the columns that group a log's rows into lists of candidates."""

import dataclasses

from ctrpipe.common.errors import InputError
from ctrpipe.common.near import did_you_mean
from ctrpipe.transforms.log.spec import LogSpec


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns that define lists: the rows with one value of `group` list the candidates in `item`."""

    group: str
    item: str


def columns_of(
    spec: LogSpec, group: str | None, item: str | None, settings: tuple[str, str] = ("--group", "--item")
) -> Columns:
    """Returns the columns that define lists.

    Args:
        spec: The description of the log.
        group: The column with one value per list; None for `user`.
        item: The column of the candidates; None for `LogSpec.item_column`, or else `item`.
        settings: The names of both settings in error messages.

    Raises:
        InputError: a column is not a categorical feature, or both are the same column.
    """
    columns = Columns(group or "user", item or spec.item_column or "item")
    single = spec.columns_of("categorical")
    for setting, name, given in zip(settings, (columns.group, columns.item), (group, item), strict=True):
        if name not in single and not given:
            raise InputError(
                f"{setting} is not given, and the model has no categorical column {name}; name one of "
                f"{', '.join(single)}"
            )
        if name not in single:
            raise InputError(
                f"{setting} {name}: not a categorical column of the model; those are {', '.join(single)}"
                f"{did_you_mean(name, single)}"
            )
    if columns.group == columns.item:
        raise InputError(
            f"{settings[0]} {columns.group}: the candidates themselves; name the column whose values are the lists"
        )
    return columns
