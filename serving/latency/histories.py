"""Sets the histories of a latency benchmark's rows to one length."""

import pyarrow as pa

from ctrpipe.common.errors import InputError
from ctrpipe.transforms.log.kinds.sequence import ItemSequence
from ctrpipe.transforms.log.spec import LogSpec


def with_history(rows: pa.RecordBatch, spec: LogSpec, length: int) -> pa.RecordBatch:
    """Returns raw rows whose histories have exactly `length` items, so all requests cost the same.

    A row's own items are cut, or repeated from the oldest, to `length`. A row without a history takes the history of
    the nearest row before it, or the first history of all rows.

    Args:
        rows: Raw columns, null = missing; columns of sequences are text.
        spec: The description of the model's log.
        length: The number of items in a history.

    Raises:
        InputError: the model reads no history or keeps fewer items, or no row has a history.
    """
    sequences = [feature for feature in spec.features if isinstance(feature, ItemSequence)]
    if not sequences:
        raise InputError("--history: the model reads no history; leave it out")
    longest = min(feature.max_length for feature in sequences)
    if length > longest:
        raise InputError(f"--history {length}: the model keeps {longest} items; give at most that many")
    columns = {name: rows[name] for name in rows.schema.names}
    for feature in sequences:
        texts = [rows[name].cast(pa.binary()).to_pylist() for name in feature.columns]
        columns |= zip(feature.columns, _stretched(texts, feature.separator.encode(), length), strict=True)
    return pa.RecordBatch.from_pydict(columns)


def _stretched(texts: list[list[bytes | None]], separator: bytes, length: int) -> list[pa.Array]:
    """Returns aligned sequences, one list of texts per column, all set to the same length."""
    columns: list[list[bytes]] = [[] for _ in texts]
    events = list(zip(*texts, strict=True))
    last = next((event for event in events if event[0]), None)
    if last is None:
        raise InputError("--history: no row has a history; give --data, a log with some")
    for event in events:
        last = event if event[0] else last
        for column, text in zip(columns, last, strict=True):
            items = (text or b"").split(separator)
            column.append(separator.join((items * (length // len(items) + 1))[:length]))
    return [pa.array(column, pa.binary()) for column in columns]
