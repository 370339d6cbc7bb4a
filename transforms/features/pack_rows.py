"""Rows of the payload through the transform graph, which sees each different value of a column once."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from transforms.features.packed_files import Rows
from transforms.log.raw_arrays import number_array
from transforms.log.spec import Feature, LogSpec, Multivalent, Numeric, Time

TIME_PARTS = 3  # hour, weekday, is_weekend


def pack_rows(rows: pa.RecordBatch, spec: LogSpec, graph: Callable[[dict[str, np.ndarray]], Rows]) -> Rows:
    """The packed rows. What a value becomes depends on it alone, whatever else is in its row or in the log.

    Criteo's rows have one different value where they have nine, so that nine strings less are made and looked up.

    Args:
        rows: Columns as the payload has them; binary ones may be dictionary arrays, which is faster.
        spec: The description of the log.
        graph: The transform graph, see `load_graph`.
    """
    texts = list(spec.text.columns) if spec.text else []
    values = {name: _encoded(rows[name]) for name in spec.feature_columns if name not in texts}
    columns = {name: encoded.dictionary for name, encoded in values.items()}
    if texts:
        different, text_places = different_rows([_encoded(rows[name]) for name in texts])
        columns |= dict(zip(texts, different, strict=True))
    count = 1 + max(map(len, columns.values()))
    padded = {name: _padded(different, count) for name, different in columns.items()}
    found = graph(padded | {name: np.zeros(count, np.float32) for name in spec.label_columns})
    packed = {"label": np.stack([number_array(rows[name]) for name in spec.label_columns], axis=1)}
    packed |= {name: np.take(found[name], text_places, axis=0) for name in ("tokens", "segments") if name in found}
    packed |= {
        name: np.empty((rows.num_rows, found[name].shape[1]), found[name].dtype)
        for name in ("ids", "dense")
        if name in found
    }
    ends = dict.fromkeys(packed, 0)
    for name, encoded in values.items():
        target, width = _place(spec.feature_by_column[name])
        start, ends[target] = ends[target], ends[target] + width
        # What is missing lies behind the column's values.
        places = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
        for column in range(start, ends[target]):
            packed[target][:, column] = np.take(np.ascontiguousarray(found[target][:, column]), places)
    return packed


def different_rows(columns: Sequence[pa.DictionaryArray]) -> tuple[list[pa.Array], np.ndarray]:
    """The different rows of one or two columns, column by column, and which of them each row is."""
    key = np.zeros(len(columns[0]), np.int64)
    for encoded in columns:
        key = key * (len(encoded.dictionary) + 1) + encoded.indices.fill_null(len(encoded.dictionary)).to_numpy()
    _, first, places = np.unique(key, return_index=True, return_inverse=True)
    return [encoded.take(pa.array(first)).dictionary_decode() for encoded in columns], places


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    return values if pa.types.is_dictionary(values.type) else values.dictionary_encode()


def _padded(values: pa.Array, count: int) -> np.ndarray:
    """The values and then missing ones, as the graph takes them; [count]."""
    is_number = pa.types.is_floating(values.type)
    padded = np.full(count, np.nan, np.float32) if is_number else np.full(count, b"", object)
    padded[: len(values)] = values.fill_null(padded[-1]).to_numpy(zero_copy_only=False)
    return padded


def _place(feature: Feature) -> tuple[str, int]:
    """Which packed values a column becomes, and how many of them."""
    if isinstance(feature, Numeric) and feature.is_dense:
        return "dense", 1
    if isinstance(feature, Multivalent):
        return "ids", feature.max_length
    return "ids", TIME_PARTS if isinstance(feature, Time) else 1
