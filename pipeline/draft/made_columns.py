"""A column that a draft derives from others."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ctrpipe.transforms.log.kinds.guess import Guess
from ctrpipe.transforms.log.sample import LogSample


@dataclasses.dataclass(frozen=True)
class MadeColumn:
    """A derived column that replaces its source columns.

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
    """Returns a column name that is not in the log."""
    while wanted in sample.columns:
        wanted += "_"
    return wanted
