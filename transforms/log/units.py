"""Finds numeric columns whose unit changes within a log, such as a price in cents from the third day on."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ctrpipe.transforms.log.column_values import numbers_of
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.suspects import Suspect

BLOCKS = 20  # of equally many rows, whose medians are compared
LEAST_ROWS = 25  # of a block
_LEAST_BLOCKS = 2  # on each side: one alone does not show that the numbers stay as they are
LEAST_TIMES = 5.0  # the least ratio of the medians after a change to those before it
_STEADIER = 3.0  # times, on a scale of logarithms, are the medians nearer on either side than across the change
_LEAST_APART = 0.95  # of the pairs of a number before and one after, that have the same order as the medians
_LESS_SPREAD = 3.0  # times, that the numbers may spread more on one side
_IN_ORDER = ("train", "validation", "test")

Floats = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Change:
    """A change in the magnitude of numbers.

    Attributes:
        share: The share of the rows before the change.
        before, after: The medians of the absolute non-zero numbers.
    """

    share: float
    before: float
    after: float


def changed_units(spec: LogSpec, rows: Mapping[str, pa.Table]) -> Iterator[Suspect]:
    """Yields the numeric columns whose magnitude jumps by a large factor and stays there.

    Args:
        spec: The description of the log.
        rows: Rows of each split in the order of the log, by its name.
    """
    follow = spec.data.split.by in ("order", "time", "files")  # one split is after the other
    splits = [name for name in _IN_ORDER if name in rows and rows[name].num_rows]
    read = splits if follow else splits[:1]
    if not read:
        return
    weight = [spec.data.weight] if spec.data.weight else []
    for column in dict.fromkeys([*spec.numeric_columns, *spec.data.number_columns, *weight]):
        numbers = np.concatenate([numbers_of(rows[name][column]) for name in read])
        if change := find_change(numbers):
            larger = change.after > change.before
            times = max(change.after, change.before) / min(change.after, change.before)
            yield Suspect(
                column,
                "all" if len(read) > 1 else read[0],
                f"its median is {change.before:g} in the first {change.share:.0%} of the rows looked at and "
                f"{change.after:g} after them, {times:.3g} times as {'large' if larger else 'small'} from there on: "
                "did its unit change? Write it in one unit, or begin the log there",
            )


def find_change(numbers: Floats) -> Change | None:
    """Returns the jump in the magnitude of consecutive numbers; None if there is none.

    Slow growth, such as a count of a user's rows, and cycles, such as a price by the hour, are not jumps. Zeros and
    missing numbers are ignored.
    """
    places = np.flatnonzero(np.isfinite(numbers) & (numbers != 0))
    blocks = min(BLOCKS, len(places) // LEAST_ROWS)
    if blocks < 2 * _LEAST_BLOCKS:
        return None
    sizes = np.log(np.abs(numbers[places].astype(np.float64)))
    ends = np.linspace(0, len(places), blocks + 1).astype(int)
    medians = np.array([np.median(sizes[first:last]) for first, last in itertools.pairwise(ends)])
    # The change may be within a block, which is then left out.
    ways = itertools.product(range(_LEAST_BLOCKS, blocks), (0, 1))
    cuts = [(cut, cut + out) for cut, out in ways if cut + out <= blocks - _LEAST_BLOCKS]
    first, second = max(cuts, key=lambda cut: _gap(medians[: cut[0]], medians[cut[1] :]))
    sides = medians[:first], medians[second:]
    gap = _gap(*sides)
    if gap < np.log(LEAST_TIMES) or gap < _STEADIER * max(np.ptp(side) for side in sides):
        return None
    middle = _cut_within(sizes, ends[first - 1], ends[min(second + 1, blocks)]) if second > first else ends[first]
    before, after = sizes[:middle], sizes[middle:]
    if not _is_shifted(before, after):
        return None
    medians_of = (float(np.median(np.abs(numbers[places[part]]))) for part in (slice(middle), slice(middle, None)))
    return Change(float(places[middle] / len(numbers)), *medians_of)


def _gap(before: Floats, after: Floats) -> float:
    """Returns the gap between all numbers before and all numbers after; negative if they overlap."""
    return float(max(after.min() - before.max(), before.min() - after.max()))


def _cut_within(sizes: Floats, first: int, last: int) -> int:
    """Returns the position between `first` and `last` with the largest difference of the means before and after it."""
    part = sizes[first:last]
    sums, counts = np.cumsum(part)[:-1], np.arange(1, len(part))
    between = (sums / counts - (part.sum() - sums) / (len(part) - counts)) ** 2 * counts * (len(part) - counts)
    return int(first + 1 + np.argmax(between))


def _is_shifted(before: Floats, after: Floats) -> bool:
    """Returns whether the logarithms after are the logarithms before with a shift: separated, and with the same
    spread.
    """
    low, high = sorted((before, after), key=np.median)
    below = np.searchsorted(np.sort(low), high) / len(low)
    spreads = sorted(float(np.subtract(*np.quantile(side, [0.75, 0.25]))) for side in (low, high))
    return float(below.mean()) >= _LEAST_APART and spreads[1] <= _LESS_SPREAD * spreads[0] + np.log(1.5)
