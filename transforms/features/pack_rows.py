"""Packs raw rows with the transform graph, which transforms each distinct value of a column once.

The result is the same as row by row, because each id or dense feature depends on a single column of its row. The
columns of a text, and the sources of a derived column, are transformed together, once per distinct row. In Criteo's log
a distinct value occurs nine times on average, so only a ninth of the strings are created and looked up.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ctrpipe.models.base.feature_map import GROUP, WEIGHT
from ctrpipe.transforms.features.packed_files import INPUTS, Rows
from ctrpipe.transforms.features.slots import tensor_slices
from ctrpipe.transforms.log.groups import group_numbers
from ctrpipe.transforms.log.raw_arrays import number_array
from ctrpipe.transforms.log.spec import LogSpec
from ctrpipe.transforms.log.vectors import is_vector, vector_array

GRAPH_ROWS = 1 << 14  # rows in one call of the graph

Array = npt.NDArray[Any]
# Maps columns, [n] or [n, length], to packed tensors [n, width].
Graph = Callable[[dict[str, Array]], Mapping[str, Array]]


class PackedValues:
    """The transformed distinct values of all columns. Assembles packed rows from them.

    Args:
        rows: At least one row; columns as in the reader's batches or the payload, null where a value is missing.
        spec: The description of the log.
        graph: The transform graph. It takes float32 [n], float32 vectors [n, length] and bytes objects [n]; a missing
            value is NaN or b"".
    """

    def __init__(self, rows: pa.Table, spec: LogSpec, graph: Graph):
        values: dict[str, Array] = {}
        self._indices: dict[str, Array] = {}
        for name in spec.feature_columns:
            values[name], self._indices[name] = _distinct_values(rows.column(name))
        for columns in _together(spec):
            _join(columns, values, self._indices)
        first = {name: next(iter(derived.sources())) for name, derived in spec.derived.items()}
        self._slices = [(target, first.get(target.column, target.column)) for target in tensor_slices(spec)]
        self._tables = self._transformed(values, graph)

    def rows(self, start: int, stop: int) -> Rows:
        """Returns the packed rows `start` to `stop - 1`, one array [stop - start, width] per tensor."""
        widths = {target.tensor: target.stop for target, _ in self._slices}
        packed = {name: np.empty((stop - start, width), INPUTS[name]) for name, width in widths.items()}
        for (target, column), table in zip(self._slices, self._tables, strict=True):
            taken = np.take(table, self._indices[column][start:stop], axis=0)
            packed[target.tensor][:, target.index] = taken
        return packed

    def _transformed(self, values: dict[str, Array], graph: Graph) -> list[Array]:
        """Returns the transformed values of each tensor slice, [values], or [values, width] for a width above 1."""
        longest = max(map(len, values.values()))
        parts: list[Mapping[str, Array]] = []
        for start in range(0, longest, GRAPH_ROWS):
            count = min(GRAPH_ROWS, longest - start)
            chunk = {name: _padded(column[start : start + count], count) for name, column in values.items()}
            parts.append(graph(chunk))
        tables = []
        for target, column in self._slices:
            table = np.concatenate([part[target.tensor][:, target.index] for part in parts])
            tables.append(table[: len(values[column])])
        return tables


def _together(spec: LogSpec) -> list[list[str]]:
    """Returns the groups of columns that are transformed together. The groups are disjoint."""
    groups = [list(spec.text.columns)] if spec.text else []
    for derived in spec.derived.values():
        own = list(derived.sources())
        apart = [group for group in groups if not set(group) & set(own)]
        joined = [name for group in groups if group not in apart for name in group]
        groups = [*apart, list(dict.fromkeys([*joined, *own]))]
    return groups


def pack_rows(rows: pa.Table, spec: LogSpec, graph: Graph) -> Rows:
    """Returns packed rows of the payload, with labels, weights and groups.

    Args:
        rows: Columns as in the payload; dictionary arrays of binary columns are faster.
        spec: The description of the log.
        graph: The transform graph (see `load_graph`), which takes labels as well.
    """

    def with_labels(columns: dict[str, Array]) -> Mapping[str, Array]:
        count = len(next(iter(columns.values())))
        return graph(columns | {name: np.zeros(count, np.float32) for name in spec.label_columns})

    label = np.stack([number_array(rows[name]) for name in spec.label_columns], axis=1)
    targets = {"label": label}
    if spec.data.weight:
        targets[WEIGHT] = number_array(rows[spec.data.weight])[:, None]
    if spec.group:
        targets[GROUP] = group_numbers(rows[spec.group]).astype("<i8").view("<i4").reshape(-1, 2)
    return {**targets, **PackedValues(rows, spec, with_labels).rows(0, rows.num_rows)}


def _distinct_values(column: pa.ChunkedArray) -> tuple[Array, Array]:
    """Returns a column's distinct values, the missing value last, and each row's index into them."""
    if pa.types.is_dictionary(column.type):
        encoded = column.unify_dictionaries()
    else:
        encoded = pc.dictionary_encode(column)
    dictionary = encoded.chunk(0).dictionary  # the same for all chunks
    count = len(dictionary)
    values: Array
    if is_vector(dictionary.type):
        known = vector_array(dictionary)
        values = np.concatenate([known, np.full((1, known.shape[1]), np.nan, np.float32)])
    else:
        is_number = pa.types.is_floating(dictionary.type)
        values = np.full(count + 1, np.nan, np.float32) if is_number else np.full(count + 1, b"", object)
        values[:count] = dictionary.fill_null(values[-1]).to_numpy(zero_copy_only=False)
    indices = pa.chunked_array([chunk.indices for chunk in encoded.chunks])
    return values, indices.fill_null(count).to_numpy()


def _join(columns: list[str], values: dict[str, Array], indices: dict[str, Array]) -> None:
    """Replaces the distinct values of several columns by their distinct combinations, which are transformed
    together.
    """
    key = np.zeros(len(indices[columns[0]]), np.int64)
    for name in columns:
        key = key * len(values[name]) + indices[name]
    _, first, index = np.unique(key, return_index=True, return_inverse=True)
    for name in columns:
        values[name], indices[name] = values[name][indices[name][first]], index


def _padded(values: Array, count: int) -> Array:
    """Returns the values, padded to `count` with missing values."""
    if len(values) == count:
        return values
    padded = np.full((count, *values.shape[1:]), b"" if values.dtype == object else np.nan, values.dtype)
    padded[: len(values)] = values
    return padded
