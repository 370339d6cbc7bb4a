"""Finds categories of which the later rows have other values than the earlier ones, such as the ids of searches."""

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
    """Returns the guess for each column of categories whose values in the test rows no training row has.

    It is left out if these are all rows of the log, or if its name is that of a session or a time. Values that the
    first rows of a longer log have once, such as users, may return, so that a user is asked.

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
    found: dict[str, Guess] = {}
    for name, guess in guesses.items():
        if guess.settings.get("kind") != "categorical" or not _passes([columns[name][row] for row in order]):
            continue
        text = "hardly a value of the last fifth of the rows is one of the rows before"
        if is_whole or is_session(name) or TIME_NAME.search(name):
            found[name] = Guess({}, f"{text}, so that a model learns nothing from it for new rows: left out", True)
        else:
            asked = f"{guess.comment}; {text}: do values return later in the log?"
            found[name] = dataclasses.replace(guess, comment=asked, unsure=True)
    return found


def _passes(values: Sequence[str]) -> bool:
    """Returns whether the later ones of some values are hardly among the earlier ones."""
    first = round((1 - _LATER) * len(values))
    earlier, later = set(values[:first]), [value for value in values[first:] if value]
    if len(values) < _FEWEST_ROWS or len(set(later)) < _FEWEST:
        return False
    return sum(value in earlier for value in later) <= _KNOWN * len(later)
