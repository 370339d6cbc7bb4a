"""Finds categories that change within a log, such as codes that become words in the test rows."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.common.printable import excerpt
from ctrpipe.transforms.log.column_values import plain_chunks
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.suspects import LEAST_ROWS, Suspect

LEAST_NEW = 0.5  # of the rows of a split, whose value no training row has
MOST_NEW_BEFORE = 0.1  # of the last training rows, whose value no earlier one has: ids that pass are new at any time
LAST_ROWS = 0.2  # of the training rows
_SHOWN = 40  # characters of a value that are printed


def changed_values(spec: LogSpec, rows: Mapping[str, pa.Table]) -> Iterator[Suspect]:
    """Yields the columns of categories whose values in a later split are mostly new, although they used to return.

    Args:
        spec: The description of the log.
        rows: Rows of each split in the order of the log, by its name.
    """
    train = rows.get("train")
    if train is None or not train.num_rows or spec.data.split.by not in ("order", "time", "files"):
        return
    for column in spec.feature_columns:
        if not spec.inputs[column].is_single:
            continue
        values = _present(train[column])
        first = round((1 - LAST_ROWS) * len(values))
        before, last = values[:first], values[first:]
        if len(last) < LEAST_ROWS or _is_new(last, before).mean() > MOST_NEW_BEFORE:
            continue
        for split, table in rows.items():
            if split == "train":
                continue
            later = _present(table[column])
            is_new = _is_new(later, values)
            if is_new.sum() < LEAST_ROWS or is_new.mean() < LEAST_NEW or len(pc.unique(later)) == 1:
                continue  # of one value in all rows `constant_columns` tells
            yield Suspect(
                column,
                split,
                f"{is_new.mean():.0%} of the rows have a value, as {_most_frequent(later.filter(pa.array(is_new)))}, "
                f"that no training row has, whose values, as {_most_frequent(values)}, used to return: did the "
                "column's values change? Write them alike in the whole log and in requests",
            )


def _present(column: pa.ChunkedArray) -> pa.Array:
    """Returns a column's values without the missing ones."""
    return plain_chunks(column).combine_chunks().drop_null()


def _is_new(values: pa.Array, known: pa.Array) -> np.ndarray:
    """Returns whether each value is none of the known ones, bool `[N]`."""
    return ~np.asarray(pc.is_in(values, value_set=pc.unique(known)))


def _most_frequent(values: pa.Array) -> str:
    counts = pc.value_counts(values)
    value = counts.field("values")[int(np.argmax(counts.field("counts").to_numpy()))].as_py()
    return repr(excerpt(value, _SHOWN))
