"""Finds rows at the end of a log whose clicks have probably not arrived yet."""

import numpy as np

LEAST_CLICKS = 30  # before a number of rows without one says something
CHANCE = 1e-6  # of an end without a click
_LONGER = 3  # times the longest part of the other rows without a click, which may be of a user who never clicks


def rows_without_clicks(label: np.ndarray) -> int:
    """Returns the number of rows without a click at the end of a log; 0 if it can be due to chance.

    Args:
        label: The label of each row in the order of the log, 0 to 1; NaN where it is missing.
    """
    known = label[np.isfinite(label)]
    clicked = np.flatnonzero(known > 0)
    if len(clicked) < LEAST_CLICKS:
        return 0
    end = len(known) - 1 - int(clicked[-1])
    rate = len(clicked) / (clicked[-1] + 1)
    longest = int(np.diff(clicked, prepend=-1).max()) - 1
    is_sorted = rate == 1 or longest == clicked[0]  # by the label: all clicks stand together
    by_chance = is_sorted or end <= _LONGER * longest or (1 - rate) ** end >= CHANCE
    return 0 if by_chance else end
