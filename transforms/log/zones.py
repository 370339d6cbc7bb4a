"""Counts times with and without a time zone; times without one are read as UTC."""

import dataclasses
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

_LOCAL = r"(^|[Tt :])\d?\d:\d\d(:\d\d([.,]\d+)?)?$"  # a time of day, and nothing after it
_ZONED = r"(\d:\d\d.*([Zz]|UTC|[+-]\d\d:?(\d\d)?)|^\d{9,19}(\.\d*)?)$"  # a zone, or an epoch


@dataclasses.dataclass
class Zones:
    """The number of times of day with a zone, which epochs always have, and without one."""

    known: int = 0
    unknown: int = 0

    def add(self, values: pa.Array) -> None:
        """Counts values. Dates without a time count as neither."""
        distinct = pc.value_counts(values.drop_null().cast(pa.binary()))
        texts, counts = distinct.field("values"), distinct.field("counts").to_numpy(zero_copy_only=False)
        local, zoned = (
            pc.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False) for pattern in (_LOCAL, _ZONED)
        )
        self.unknown += int(counts[local].sum())
        self.known += int(counts[zoned & ~local].sum())


def zones_told(sides: Mapping[str, Zones]) -> list[str]:
    """Returns a line if some of the compared times have a zone and others have none.

    Args:
        sides: The counted times, by their name in the line.
    """
    local = [name for name, zones in sides.items() if zones.unknown]
    zoned = [name for name, zones in sides.items() if zones.known]
    if not local or not zoned:
        return []
    beside = "others there" if local == zoned else " and ".join(name for name in zoned if name not in local)
    return [
        f"{' and '.join(local)}: times without a zone are read as UTC, beside those of {beside or 'others'} with one; "
        "write local times with their zone"
    ]
