"""Finds columns with the place at which a row was shown, which the log has and a request has not."""

import math
import re

import numpy as np

_NAME = re.compile(r"(.*[_\W])?(pos|position|rank|ranking)", re.IGNORECASE)
_MOST_PLACES = 1000
_LEAST_ERRORS = 5.0  # standard errors that the clicks fall with the place


def clicks_fall_with_place(name: str, numbers: np.ndarray | None, label: np.ndarray) -> str:
    """Returns a warning if a column is named as a place and its clicks fall with it; "" if not.

    Args:
        name: The column's name.
        numbers: Its values [N], NaN for a missing one; None for texts.
        label: The label of each row, 0 to 1, NaN for a missing one.
    """
    if numbers is None or not _NAME.fullmatch(name):
        return ""
    known = np.isfinite(numbers) & np.isfinite(label)
    places, clicks = numbers[known], label[known]
    if not len(places) or (places % 1).any() or places.min() < 0 or places.max() > _MOST_PLACES:
        return ""
    if np.ptp(places) == 0 or np.ptp(clicks) == 0:
        return ""
    if np.corrcoef(places, clicks)[0, 1] * math.sqrt(len(places)) > -_LEAST_ERRORS:
        return ""
    first, middle = places.min(), np.median(places)
    before, after = clicks[places == first].mean(), clicks[places > min(middle, places.max() - 1)].mean()
    return (
        f"clicked in {before:.1%} of the rows at {first:g} and in {after:.1%} of the later ones, as the place of an "
        "impression is, which a request has not before the ranking: set role: position and serving.position, or leave "
        "it out"
    )
