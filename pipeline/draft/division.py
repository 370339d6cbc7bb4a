"""How `ctrpipe init` divides a log into training, validation and test rows."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from ctrpipe.pipeline.draft.groups import group_of
from ctrpipe.pipeline.draft.other_times import OTHER_TIME
from ctrpipe.transforms.log.kinds.guess import TIME_NAME, Guess
from ctrpipe.transforms.log.ordering import moments_of
from ctrpipe.transforms.log.sample import LogSample
from ctrpipe.transforms.log.strange_times import are_after

_DAY = 86_400e6  # microseconds; a shorter while may be that of a date without its hour


@dataclasses.dataclass(frozen=True)
class Division:
    """The keys of `data.split`, why they were chosen, and the feature that they make useless; "" for none."""

    settings: dict[str, Any]
    why: str
    without: str = ""


def divided(
    sample: LogSample,
    guesses: Mapping[str, Guess],
    label: str,
    time: str | None = None,
    group: str | None = None,
    user: str | None = None,
    has_order: bool = True,
) -> Division:
    """Returns how to split a log: by time if its rows are not in the order of their times, otherwise by order.

    Splits by group, such as session, if the rows of a group are scattered or the log is sorted by its label. Without an
    order, splits by time or at random.

    Args:
        sample: The first rows of a log.
        guesses: The kind of each column.
        label: The label's column.
        time, group, user: Columns named by the user; None: guessed.
        has_order: Whether the log's rows have an order, unlike those of a table in a database.
    """
    if time:
        guess = guesses.get(time)
        return _by_time(time, "as --time says", _time_format(guess) if guess else "auto")
    if by := group or user:
        told = "--group" if group else "--user"
        return Division(_of_group(by), f"the rows of one {_one_line(by)} are in one split, as {told} says")
    times = [name for name, guess in guesses.items() if guess.settings.get("kind") == "time"]
    if "partitions" in sample.data:
        why = "the last rows are the test rows; the folders are read in order, day=2 before day=10"
        return Division({"by": "order"}, why)
    keys = {name: _time_keys(sample.columns[name], _time_format(guesses[name])) for name in times}
    own = [name for name in times if not OTHER_TIME.search(name) and not _is_after_the_rows(name, keys)]
    own = [name for name in own if TIME_NAME.search(name) or not _are_digits(sample.columns[name])] or own
    if own and not has_order:
        return _by_time(own[0], "as a table has no order", _time_format(guesses[own[0]]))
    out_of_order = [name for name in own if not _rises(keys[name])]
    if out_of_order:
        first = out_of_order[0]
        return _by_time(first, "as it says that the log is not in the order of time", _time_format(guesses[first]))
    grouping = group_of(sample, label)
    column = _one_line(grouping.column) if grouping else ""
    if not has_order or _runs(sample.columns[label]) <= 3:
        seen = "the log seems to be sorted by the label" if has_order else "a table has no order"
        why = f"at random, because {seen}"
        if grouping:
            why += f"; the rows of one {column} are in one split"
            return Division(_of_group(grouping.column), why, grouping.column)
        return Division({"by": "hash"}, why)
    if grouping and grouping.is_scattered:
        why = f"the rows of one {column} are all over the log, and in one split here: a test row would be known by them"
        return Division(_of_group(grouping.column), why, grouping.column)
    why = "the log's last rows are the test rows; by: hash draws them at random"
    if grouping:
        why += f", {{by: group, column: {column}}} those of new values of {column}"
    return Division({"by": "order"}, why)


def _time_format(guess: Guess) -> str:
    """Returns the time format that a split uses for a column."""
    return str(guess.settings.get("format", "auto"))


def _are_digits(values: Sequence[str]) -> bool:
    """Returns whether a column's times are plain digits, as ids may be too, such as the numbers of books."""
    return all(value.isascii() and value.isdigit() for value in values if value)


def _time_keys(values: Sequence[str], time_format: str) -> np.ndarray:
    """Returns comparable numbers for the times of a column, in the order of the rows; NaN for the unreadable ones."""
    return moments_of(pa.array([value.encode() for value in values], pa.binary()), time_format)


def _is_after_the_rows(name: str, keys: Mapping[str, np.ndarray]) -> bool:
    """Returns whether a time is at least a day after another one by which the rows are in order, such as an arrival
    after its booking.
    """
    others = (other for other in keys if other != name and _rises(keys[other]))
    return any(
        are_after(keys[name], keys[other]) and np.nanmedian(keys[name] - keys[other]) >= _DAY for other in others
    )


def _by_time(column: str, why: str, time_format: str = "auto") -> Division:
    split: dict[str, Any] = {"by": "time", "column": column, "validation": 0.1, "test": 0.1}
    if "%" in time_format:  # the split knows the other forms
        split["time_format"] = time_format
    return Division(split, f"the last tenth of the time are the test rows, by {_one_line(column)}, {why}")


def _of_group(column: str) -> dict[str, Any]:
    return {"by": "group", "column": column}


def _rises(numbers: np.ndarray) -> bool:
    """Returns whether numbers rise, with falls in at most 20% of their changes. Equal ones are allowed, NaN ignored."""
    steps = np.diff(numbers[~np.isnan(numbers)])
    return bool((steps < 0).sum() <= 0.2 * (steps != 0).sum())


def _runs(values: list[str]) -> int:
    return 1 + sum(first != second for first, second in zip(values, values[1:], strict=False))


def _one_line(column: str) -> str:
    return column.replace("\n", " ")
