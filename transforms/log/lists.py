"""The columns that make lists of candidates."""

import dataclasses

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.spec import LogSpec


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns that make lists: each value of `group` is a list, whose candidates are `item`."""

    group: str
    item: str


def columns_of(
    spec: LogSpec, group: str | None, item: str | None, settings: tuple[str, str] = ("--group", "--item")
) -> Columns:
    """Returns the columns that make lists; without names, `user`, and the candidate's own (LogSpec.item_column).

    Args:
        spec: The description of the log.
        group: The column whose values are the lists.
        item: The column of the candidates.
        settings: What a message calls the two.

    Raises:
        InputError: a column is no single value of the model's, or there is no default.
    """
    found = Columns(group or "user", item or spec.item_column or "item")
    single = spec.columns_of("categorical")
    for setting, name in zip(settings, (found.group, found.item), strict=True):
        if name not in single:
            raise InputError(
                f"{setting} {name}: no column of the model's kind categorical; they are {', '.join(single)}"
            )
    if found.group == found.item:
        raise InputError(
            f"{settings[0]} {found.group}: the candidates themselves; name the column whose values are the lists"
        )
    return found
