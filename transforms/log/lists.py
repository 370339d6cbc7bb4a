"""The columns that make lists of candidates."""

import dataclasses

from common.errors import InputError
from transforms.log.spec import LogSpec


@dataclasses.dataclass(frozen=True)
class Columns:
    """The columns that make lists: each value of `group` is a list, whose candidates are `item`."""

    group: str
    item: str


def columns_of(
    spec: LogSpec, group: str | None, item: str | None, settings: tuple[str, str] = ("--group", "--item")
) -> Columns:
    """Returns the columns that make lists; without names, `user`, and the column that a history shares its items with.

    Args:
        spec: The description of the log.
        group: The column whose values are the lists.
        item: The column of the candidates.
        settings: What a message calls the two.

    Raises:
        InputError: a column is no single value of the model's, or there is no default.
    """
    shared = [owner for name, owner in spec.vocabulary_owners.items() if owner != name]
    found = Columns(group or "user", item or (shared[0] if shared else "item"))
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
