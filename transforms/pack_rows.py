"""Rows of the payload through the transform graph, which sees each different value of a column once."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from transforms.packed import Rows
from transforms.raw import number_array
from transforms.spec import Feature, LogSpec, Multivalent, Numeric, Time

TIME_PARTS = 3  # hour, weekday, is_weekend


def pack_rows(rows: pa.RecordBatch, spec: LogSpec, graph: Callable[[dict[str, np.ndarray]], Rows]) -> Rows:
    """The packed rows. What a value becomes depends on it alone, whatever else is in its row or in the log.

    Criteo's rows have one different value where they have nine, so that nine strings less are made and looked up.

    Args:
        rows: Columns as the payload has them; binary ones may be dictionary arrays, which is faster.
        spec: The description of the log.
        graph: The transform graph, see `load_graph`.
    """
    values = {name: _encoded(rows[name]) for name in spec.feature_columns}
    count = 1 + max(len(encoded.dictionary) for encoded in values.values())
    columns = {name: _padded(encoded.dictionary, count) for name, encoded in values.items()}
    found = graph(columns | {name: np.zeros(count, np.float32) for name in spec.label_columns})
    packed = {"label": np.stack([number_array(rows[name]) for name in spec.label_columns], axis=1)}
    packed |= {
        name: np.empty((rows.num_rows, found[name].shape[1]), found[name].dtype)
        for name in ("ids", "dense")
        if name in found
    }
    ends = dict.fromkeys(packed, 0)
    for name, feature in spec.feature_by_column.items():
        target, width = _place(feature)
        start, ends[target] = ends[target], ends[target] + width
        # What is missing lies behind the column's values.
        places = values[name].indices.fill_null(len(values[name].dictionary)).to_numpy()
        for column in range(start, ends[target]):
            packed[target][:, column] = np.take(np.ascontiguousarray(found[target][:, column]), places)
    return packed


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    return values if pa.types.is_dictionary(values.type) else values.dictionary_encode()


def _padded(values: pa.Array, count: int) -> np.ndarray:
    """The values and then missing ones, as the graph takes them; [count]."""
    is_number = pa.types.is_floating(values.type)
    padded = np.full(count, np.nan, np.float32) if is_number else np.full(count, b"", object)
    padded[: len(values)] = values.to_numpy(zero_copy_only=False)
    return padded


def _place(feature: Feature) -> tuple[str, int]:
    """Which packed values a column becomes, and how many of them."""
    if isinstance(feature, Numeric) and feature.is_dense:
        return "dense", 1
    if isinstance(feature, Multivalent):
        return "ids", feature.max_length
    return "ids", TIME_PARTS if isinstance(feature, Time) else 1
