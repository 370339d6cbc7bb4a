"""A column that a draft makes of others."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ctrpipe.transforms.log.kinds.guess import Guess
from ctrpipe.transforms.log.sample import LogSample


@dataclasses.dataclass(frozen=True)
class MadeColumn:
    """A derived column in place of the columns that it is made of.

    Attributes:
        name: The name of the derived column.
        of: The columns of the log.
        derived: Its entry in `derived`.
        guess: The feature of the derived column.
    """

    name: str
    of: tuple[str, ...]
    derived: Mapping[str, Any]
    guess: Guess


def free_name(wanted: str, sample: LogSample) -> str:
    """Returns a name that no column of a log has."""
    while wanted in sample.columns:
        wanted += "_"
    return wanted
