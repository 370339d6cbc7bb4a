"""Finds columns that reveal the label in combination with a key, such as a user's click count over the whole log.

A count or a click rate by key that includes its own row, or only later rows, depends on the row's label. The column
alone need not show this.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from ctrpipe.common.metrics import auc_of_counts
from ctrpipe.transforms.log.column_values import Values
from ctrpipe.transforms.log.own_rates import LEAST_KEYS, are_own_counts, are_own_rates

OWN_RATES = "its values are the click rates of their own rows, computed from the labels of these rows themselves"
MOST_AUC = 0.98  # of a column combined with a key
LEAST_ROWS = 30  # of the rarer class, before anything is said of them
MOST_KEYS = 6  # columns that are tried as keys: those with the most values
_ROUNDING = 1e-9  # of a column's largest number

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def keyed_leaks(columns: Mapping[str, Values], keys: Sequence[str], label: Floats) -> Iterator[tuple[str, str]]:
    """Yields the columns that reveal the label in combination with a key, each with an explanation.

    Args:
        columns: The columns, in the order of the log.
        keys: The categorical columns to try as keys.
        label: The label of each row, 0 to 1; NaN where it is missing.
    """
    known = np.isfinite(label)
    clicks = label > 0.5
    if min((clicks & known).sum(), (~clicks & known).sum()) < LEAST_ROWS:
        return
    tried = [(name, _ByKey.of(columns[name].codes, known)) for name in _most_different(columns, keys)]
    for column, values in columns.items():
        if values.numbers is None:
            continue
        for name, by_key in tried:
            if name != column and (text := _given_away(values.numbers, name, by_key, clicks)):
                yield column, text
                break


def _most_different(columns: Mapping[str, Values], keys: Sequence[str]) -> list[str]:
    """Returns the keys with the most values, among keys with at least two rows per value on average."""
    sizes = {name: len(np.unique(columns[name].codes)) for name in keys}
    several = [name for name, size in sizes.items() if LEAST_KEYS <= size <= len(columns[name].codes) / 2]
    return sorted(several, key=lambda name: -sizes[name])[:MOST_KEYS]


@dataclasses.dataclass(frozen=True)
class _ByKey:
    """Rows sorted by key; rows of one key are in the order of the log.

    Attributes:
        rows: The rows, [N].
        keys: The key of each row, from 0.
        follows: Whether each row except the first has the same key as the previous row, [N - 1].
    """

    rows: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]
    follows: Flags

    @classmethod
    def of(cls, codes: npt.NDArray[np.int64], among: Flags) -> "_ByKey":
        """Sorts the rows `among` that have a key; code 0 is a missing key."""
        order = np.argsort(codes, kind="stable")
        rows = order[(among & (codes > 0))[order]]
        follows = np.diff(codes[rows]) == 0
        return cls(rows, np.concatenate([[0], np.cumsum(~follows)]).astype(np.int64)[: len(rows)], follows)

    def means(self, values: Floats) -> Floats:
        """Returns for each row the mean of its key's values. `values` is in the order of `rows`."""
        starts = np.concatenate([[0], 1 + np.flatnonzero(~self.follows)])
        counts = np.diff(np.append(starts, len(values)))
        means: Floats = np.repeat(np.add.reduceat(values, starts) / counts, counts)
        return means


def _given_away(numbers: Floats, key: str, by_key: _ByKey, clicks: Flags) -> str:
    """Returns how a column reveals the label in combination with a key; "" if it does not."""
    values, clicked = numbers[by_key.rows], clicks[by_key.rows]
    if not len(values) or not np.isfinite(values).all():
        return ""
    small = _ROUNDING * np.abs(values).max()
    steps = np.diff(values)
    rises, falls = (steps > small) & by_key.follows, (steps < -small) & by_key.follows
    if not rises.any() and not falls.any():
        if are_own_rates(values, by_key.keys, clicked):
            return OWN_RATES
        if are_own_counts(values, by_key.keys, clicked):
            return f"its values are the clicks of each {key} in the whole log, those of the rows themselves among them"
        return ""
    for of_row, up, down in ((clicked[1:], rises, falls), (clicked[:-1], falls, rises)):
        if _auc_of_signs(up, down, of_row, by_key.follows) > MOST_AUC:
            return f"from one row of a {key} to the next it rises by the click of the row itself: it counts its own row"
    over = values - by_key.means(values)
    above, below = over > small, over < -small
    alone = _auc_of_signs(above, below, clicked, above | below)
    if max(alone, 1 - alone) > MOST_AUC:
        side = "lower" if alone < 0.5 else "higher"
        return (
            f"among the rows of one {key} it is {side} in those with a click (AUC {max(alone, 1 - alone):.4f}), as a "
            "click rate of the other rows is"
        )
    return ""


def _auc_of_signs(above: Flags, below: Flags, clicks: Flags, among: Flags) -> float:
    """Returns the AUC of a score that is 1 above, -1 below and otherwise 0; 0.5 if a class has too few rows.

    Args:
        above, below, clicks: Flags of each row.
        among: The rows to use.
    """
    clicked, others = clicks & among, ~clicks & among
    counts = [
        np.array([low, rows.sum() - low - high, high])
        for rows in (clicked, others)
        for low, high in [(np.count_nonzero(below & rows), np.count_nonzero(above & rows))]
    ]
    if min(count.sum() for count in counts) < LEAST_ROWS:
        return 0.5
    return auc_of_counts(*counts)
