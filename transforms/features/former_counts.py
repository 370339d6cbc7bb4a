"""How often each value occurred in former trainings, so that it can be admitted by its count over several of them."""

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
# `ago`: the value was counted so many trainings before the one that wrote the file.
SCHEMA = pa.schema(
    {
        "column": pa.dictionary(pa.int32(), pa.string()),
        "value": pa.large_binary(),
        "ago": pa.int32(),
        "count": pa.int64(),
    }
)


def counted_over(summary: LogSummary, former: pa.Table) -> LogSummary:
    """Returns a summary in which today's values have their counts of former trainings too.

    Values that today's rows lack are left out: they cannot be admitted today. Words that are ranked by TF x IDF keep
    today's counts, which belong to today's texts.

    Args:
        summary: Of today's rows.
        former: What `read_counts` returns.
    """
    counted = [column for column in summary.values if column not in summary.documents]
    added = {column: _added(summary.values[column], _of_column(former, column)) for column in counted}
    return dataclasses.replace(summary, values={**summary.values, **added})


def write_counts(path: pathlib.Path, summary: LogSummary, former: pa.Table, window: int) -> None:
    """Writes the counts that the next training adds to its own.

    Args:
        path: The Parquet file.
        summary: Of today's rows, alone.
        former: What `read_counts` returns.
        window: How many trainings are counted over, today's included.
    """
    today = [_table(column, values) for column, values in summary.values.items()]
    table = pa.concat_tables([*today, former.filter(pc.less(former["ago"], window - 1))])
    with atomic_path(path) as unfinished:
        pq.write_table(table.unify_dictionaries(), unfinished, compression="zstd")


def read_counts(path: pathlib.Path, window: int) -> pa.Table:
    """Returns the counts of the `window` - 1 trainings before today's, `ago` counted from today.

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
    """Returns the values of today with the counts of both."""
    places = pc.index_in(former["value"], value_set=today.values)
    known = places.is_valid()
    more = np.bincount(places.filter(known), former["count"].filter(known), len(today.counts))
    return dataclasses.replace(today, counts=today.counts + more.astype(np.int64))


def _table(column: str, counted: ValueCounts) -> pa.Table:
    rows = len(counted.counts)
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array([column]))
    return pa.table([names, counted.values, np.zeros(rows, np.int32), counted.counts], schema=SCHEMA)
