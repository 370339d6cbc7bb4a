"""Finds two values of `data.split.column` that look the same to a reader, and words for missing ones among its groups.

The rows of ` u1` and `u1` may be in two splits, although they are one user's. The column need not be a feature, so the
rows that are kept of a log may lack it.
"""

import collections
import zlib
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.transforms.log.kinds.guess import ROUNDED_ID
from ctrpipe.transforms.log.look_alikes import LEAST_SHARE, look_alikes, one_writing
from ctrpipe.transforms.log.words import USUAL_MISSING

MOST = 2_000  # values that are kept, with all their writings
_ALL = 1 << 32
_WORDS = frozenset(USUAL_MISSING)


class GroupSample:
    """The rows of each group of a sample, which has all groups of a log with few.

    Groups are drawn by a hash of one writing for all that look alike. The sample of a log is therefore that of its
    parts' samples, and has all writings of a value or none.

    Attributes:
        rows: By group, its number of rows.
        strange: By group, the number of rows of all words for a missing value and all rounded numbers of the log.
        total: The number of all rows of the log.
    """

    def __init__(self) -> None:
        self.rows: collections.Counter[str] = collections.Counter()
        self.strange: collections.Counter[str] = collections.Counter()
        self.total = 0
        self._draws: dict[str, int] = {}  # of each group in `rows`
        self._last = _ALL  # the largest draw that is kept

    def add(self, groups: pa.Array) -> None:
        """Adds the group of each row, binary `[N]`; null for a row without one."""
        self.total += len(groups)
        counted = pc.value_counts(groups.drop_null())
        for word, rows in zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True):
            group = word.decode("utf-8", "replace")
            if group in _WORDS or ROUNDED_ID.fullmatch(group):
                self.strange[group] += rows
            draw = zlib.crc32(one_writing(group).encode("utf-8", "replace"))
            if draw <= self._last:
                self.rows[group] += rows
                self._draws[group] = draw
        self._reduce()

    def merge(self, other: "GroupSample") -> None:
        """Adds the sample of another part of the log."""
        self.total += other.total
        self.strange.update(other.strange)
        self.rows.update(other.rows)
        self._draws.update(other._draws)
        self._reduce()

    def _reduce(self) -> None:
        draws = sorted(set(self._draws.values()))
        if len(draws) <= MOST:
            return
        self._last = draws[MOST - 1]
        for group in [group for group, draw in self._draws.items() if draw > self._last]:
            del self.rows[group], self._draws[group]

    def findings(self) -> Iterator[str]:
        """Yields what is strange about the groups: two that look the same, or a word for a missing value."""
        if text := look_alikes(self.rows, self.total, "groups of the split", self.rows.total()):
            yield f"{text}, or one user's rows are in two splits"
        words = [group for group in self.strange if group in _WORDS]
        rounded = [group for group in self.strange if group not in _WORDS]
        if shown := self._most_frequent(rounded):
            yield (
                f"{shown}, is a number that a spreadsheet has rounded, so that several groups became one: export the "
                "ids as text"
            )
        if shown := self._most_frequent(words):
            yield (
                f"{shown}, is one group, whose rows are all in one split: if it means a missing value, name it in "
                "data.missing_values"
            )

    def _most_frequent(self, groups: Sequence[str]) -> str:
        """Returns the group with the most rows, and its share of all; "" if the share is too small to matter."""
        group = max(groups, key=self.strange.__getitem__, default="")
        if not group or self.strange[group] < LEAST_SHARE * self.total:
            return ""
        return f"{group!r}, in {self.strange[group] / self.total:.1%} of the rows"
