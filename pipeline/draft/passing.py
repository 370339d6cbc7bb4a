"""Finds categories whose values do not recur in later rows, such as search ids."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ctrpipe.pipeline.draft.groups import is_session
from ctrpipe.pipeline.draft.other_times import seconds_of
from ctrpipe.transforms.log.kinds.guess import TIME_NAME, Guess

_LATER = 0.2  # of the rows, the validation and test rows of a draft's splits by order and by time
_KNOWN = 0.02  # of the later rows' values: of a group of rows a part may be earlier
_FEWEST = 5  # different values in the later rows
_FEWEST_ROWS = 100


def passing_columns(
    columns: Mapping[str, Sequence[str]], guesses: Mapping[str, Guess], split: Mapping[str, Any], is_whole: bool
) -> dict[str, Guess]:
    """Returns the guess for each categorical column whose values in test rows do not occur in training rows.

    The column is left out if all rows of the log were read, or if its name is a session's or a time's. Otherwise its
    values, such as users, may recur in a longer log, and the user is asked.

    Args:
        columns: The values by column.
        guesses: The kind of each column.
        split: `data.split` of the draft.
        is_whole: Whether the values are those of all rows of the log.
    """
    if split["by"] == "time":
        seconds = seconds_of(columns[split["column"]], split.get("time_format", "auto"))
        order: Sequence[int] = np.argsort(seconds, kind="stable").tolist()
    elif split["by"] == "order":
        order = range(len(next(iter(columns.values()))))
    else:
        return {}
    changed: dict[str, Guess] = {}
    for name, guess in guesses.items():
        if guess.settings.get("kind") != "categorical" or not _passes([columns[name][row] for row in order]):
            continue
        text = "hardly any value of the last fifth of the rows occurs in the rows before"
        if is_whole or is_session(name) or TIME_NAME.search(name):
            changed[name] = Guess({}, f"{text}; a model learns nothing from it for new rows: left out", True)
        else:
            asked = f"{guess.comment}; {text}: do values return later in the log?"
            changed[name] = dataclasses.replace(guess, comment=asked, unsure=True)
    return changed


def _passes(values: Sequence[str]) -> bool:
    """Returns whether hardly any later value occurs among the earlier values."""
    first = round((1 - _LATER) * len(values))
    earlier, later = set(values[:first]), [value for value in values[first:] if value]
    if len(values) < _FEWEST_ROWS or len(set(later)) < _FEWEST:
        return False
    return sum(value in earlier for value in later) <= _KNOWN * len(later)
