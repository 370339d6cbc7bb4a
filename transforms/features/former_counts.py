"""Value counts of earlier training runs, for vocabularies that count values over several runs."""

import dataclasses
import pathlib

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ctrpipe.common.errors import InputError, one_line
from ctrpipe.common.files import atomic_path
from ctrpipe.transforms.features.analyzers import LogSummary, ValueCounts

COUNTS = "counts.parquet"
# `ago`: how many training runs before the file was written the value was counted.
SCHEMA = pa.schema(
    {
        "column": pa.dictionary(pa.int32(), pa.string()),
        "value": pa.large_binary(),
        "ago": pa.int32(),
        "count": pa.int64(),
    }
)


def counted_over(summary: LogSummary, former: pa.Table) -> LogSummary:
    """Returns the summary with the counts of earlier training runs added.

    Values that are missing from the current rows are left out, because they cannot enter the current vocabulary. Tokens
    ranked by TF x IDF keep their current counts, because the document counts are of the current texts.

    Args:
        summary: The summary of the current rows.
        former: The result of `read_counts`.
    """
    counted = [column for column in summary.values if column not in summary.documents]
    added = {column: _added(summary.values[column], _of_column(former, column)) for column in counted}
    return dataclasses.replace(summary, values={**summary.values, **added})


def write_counts(path: pathlib.Path, summary: LogSummary, former: pa.Table, window: int) -> None:
    """Writes the counts that the next training run adds to its own.

    Args:
        path: The Parquet file.
        summary: The summary of the current rows only.
        former: The result of `read_counts`.
        window: Number of training runs to count over, the current one included.
    """
    today = [_table(column, values) for column, values in summary.values.items()]
    table = pa.concat_tables([*today, former.filter(pc.less(former["ago"], window - 1))])
    with atomic_path(path) as unfinished:
        pq.write_table(table.unify_dictionaries(), unfinished, compression="zstd")


def read_counts(path: pathlib.Path, window: int) -> pa.Table:
    """Returns the counts of the `window` - 1 training runs before the current one; `ago` is 1 for the latest.

    Raises:
        InputError: the file is absent or damaged.
    """
    try:
        table = pq.read_table(path).select(SCHEMA.names).cast(SCHEMA)
    except (OSError, ValueError, LookupError) as error:
        raise InputError(f"{path}: damaged ({one_line(error, 100)}); train the model again") from error
    ago = pc.add(table["ago"], pa.scalar(1, pa.int32()))
    table = table.set_column(SCHEMA.names.index("ago"), SCHEMA.field("ago"), ago)
    return table.filter(pc.less(table["ago"], window))


def _of_column(table: pa.Table, column: str) -> pa.Table:
    return table.filter(pc.equal(table["column"].cast(pa.string()), column))


def _added(today: ValueCounts, former: pa.Table) -> ValueCounts:
    """Returns the current values with the sum of their current and former counts."""
    places = pc.index_in(former["value"], value_set=today.values)
    known = places.is_valid()
    more = np.bincount(places.filter(known), former["count"].filter(known), len(today.counts))
    return dataclasses.replace(today, counts=today.counts + more.astype(np.int64))


def _table(column: str, counted: ValueCounts) -> pa.Table:
    rows = len(counted.counts)
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([column]))
    return pa.table([names, counted.values, np.zeros(rows, np.int32), counted.counts], schema=SCHEMA)
