"""Finds problems that show only in all splits together, or in the order of their rows."""

from collections.abc import Iterator, Mapping

import pyarrow as pa

from ctrpipe.transforms.log.changed_values import changed_values
from ctrpipe.transforms.log.shared_labels import shared_labels
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.strange_times import strange_times
from ctrpipe.transforms.log.suspects import Suspect, constant_columns, late_ends
from ctrpipe.transforms.log.units import changed_units


def of_all_splits(spec: LogSpec, rows: Mapping[str, pa.Table]) -> Iterator[Suspect]:
    """Yields the findings about labels, constant columns, changed values, units, times and groups of rows.

    Args:
        spec: The description of the log.
        rows: Rows of each split in the order of the log, by its name.
    """
    for finds in (late_ends, constant_columns, changed_values, changed_units, strange_times, shared_labels):
        yield from finds(spec, rows)
